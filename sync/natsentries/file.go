package natsentries

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// fileHead is the first line of a Follower's file.
const fileHead = "spillgate entries 1"

// readFile reads the entries of a file; there are none where it is not there. Where some are damaged, or
// all, its error wraps ErrBad, and those that are not are there.
func readFile(path string) (found []Entry, err error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("entries: %w", err)
	}
	defer f.Close() // it was only read
	damaged, first := 0, error(nil)
	in := bufio.NewScanner(f)
	in.Buffer(nil, 2*maxValue)
	for line := 1; in.Scan(); line++ {
		if line == 1 {
			if in.Text() != fileHead {
				return nil, fmt.Errorf("entries: %s: %w: want %q in line 1; remove the file, and the entries are read from NATS", path, ErrBad, fileHead)
			}
			continue
		}
		e, err := readLine(in.Text())
		if err != nil {
			if damaged++; first == nil {
				first = fmt.Errorf("line %d: %w", line, err)
			}
			continue
		}
		found = append(found, e)
	}
	if err := in.Err(); err != nil {
		damaged, first = damaged+1, errors.Join(first, err, ErrBad)
	}
	if damaged > 0 {
		err = fmt.Errorf("entries: %s: %d lines are damaged, and left out until NATS has them; %w", path, damaged, first)
	}
	return found, err
}

func readLine(line string) (Entry, error) {
	sum, line, _ := strings.Cut(line, " ")
	if sum != checksum(line) {
		return Entry{}, bad("the checksum is another")
	}
	key, value, _ := strings.Cut(line, " ")
	return unpack(key, []byte(value))
}

func checksum(s string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(s))) }

// writeFile puts entries in the place of what is there, whole: it is on disk before it has the name.
func writeFile(path string, lines iter.Seq[string]) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("entries: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("entries: write %s: %w", path, err)
		}
	}()
	out := bufio.NewWriterSize(f, 1<<18)
	fmt.Fprintln(out, fileHead)
	for line := range lines {
		fmt.Fprintln(out, checksum(line), line)
	}
	if err := errors.Join(out.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
