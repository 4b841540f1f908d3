package natsrules

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileHead is the first line of a Follower's file; a version a line follows, packed, in
// base64, with a checksum before it.
const fileHead = "spillgate rules 1"

// readFile reads the versions of a file; there are none where it is not there.
func readFile(path string) ([]Version, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("rules: %w", err)
	}
	defer f.Close() // it was only read
	bad := func(line int, what any) ([]Version, error) {
		return nil, fmt.Errorf("rules: %s, line %d: %w: %v; remove the file, and the rules are read from NATS", path, line, ErrBad, what)
	}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 2*maxValue)
	var out []Version
	for line := 1; in.Scan(); line++ {
		if line == 1 {
			if in.Text() != fileHead {
				return bad(line, fmt.Sprintf("want %q", fileHead))
			}
			continue
		}
		sum, packed, _ := strings.Cut(in.Text(), " ")
		value, err := base64.StdEncoding.DecodeString(packed)
		if err != nil {
			return bad(line, err)
		}
		if sum != checksum(value) {
			return bad(line, "the checksum is another")
		}
		v, err := unpack(value)
		if err != nil {
			return bad(line, err)
		}
		out = append(out, v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("rules: %s: %w", path, err)
	}
	return out, nil
}

func checksum(b []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)) }

// writeFile puts versions in the place of what is there, whole: it is on disk before it has the name.
func writeFile(path string, versions []Version) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("rules: write %s: %w", path, err)
		}
	}()
	out := bufio.NewWriter(f)
	fmt.Fprintln(out, fileHead)
	for i := range versions {
		value, err := versions[i].pack()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		fmt.Fprintln(out, checksum(value), base64.StdEncoding.EncodeToString(value))
	}
	if err := errors.Join(out.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
