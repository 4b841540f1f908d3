package configs

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/sync"
)

type parseFunc = func(value string) error

func asText(dst *string) parseFunc {
	return func(value string) error {
		*dst = value
		return nil
	}
}

// asToken reads a name that becomes a token of subjects.
func asToken(dst *string, required bool) parseFunc {
	return func(value string) error {
		*dst = value
		switch {
		case value == "" && required:
			return errors.New("is missing")
		case value != "":
			return deltasync.ValidToken(value)
		}
		return nil
	}
}

func asTokens(dst *[]string) parseFunc {
	return func(value string) error {
		*dst = splitList(value)
		for i, s := range *dst {
			if err := deltasync.ValidToken(s); err != nil {
				return err
			}
			if slices.Contains((*dst)[:i], s) {
				return fmt.Errorf("%q stands here twice", s)
			}
		}
		return nil
	}
}

func asInt(dst *int, lo, hi int) parseFunc {
	return func(value string) error {
		n, err := strconv.Atoi(value)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a whole number", clip(value))
		case n < lo || n > hi:
			return fmt.Errorf("%d is out of range; %d to %d", n, lo, hi)
		}
		*dst = n
		return nil
	}
}

func asSize(dst *int64, lo int64) parseFunc {
	return func(value string) error {
		n, err := parseSize(value)
		switch {
		case err != nil:
			return fmt.Errorf("%w; such as 64MiB", err)
		case int64(n) < lo:
			return fmt.Errorf("%d bytes are too few; at least %d", n, lo)
		}
		*dst = int64(n)
		return nil
	}
}

// asPace reads bytes a second: a size, and "/s" after it or not.
func asPace(dst *int64, lo int64) parseFunc {
	size := asSize(dst, lo)
	return func(value string) error { return size(strings.TrimSpace(strings.TrimSuffix(value, "/s"))) }
}

func asDuration(dst *time.Duration, lo, hi time.Duration) parseFunc {
	return func(value string) error {
		d, err := ParseDuration(value)
		switch {
		case err != nil:
			hint := durationHint(value)
			if meant, bad := ParseDuration(hint); bad == nil && (meant < lo || meant > hi) {
				hint = fmt.Sprintf("%v to %v", lo, hi)
			}
			return fmt.Errorf("%w; %s", err, hint)
		case d < lo || d > hi:
			return fmt.Errorf("%v is out of range; %v to %v", d, lo, hi)
		}
		*dst = d
		return nil
	}
}

// asListen reads the address of a listener.
func asListen(dst *string) parseFunc {
	return func(value string) error {
		if *dst = value; isUnix(value) {
			return checkUnix(value)
		}
		_, err := splitListen(value)
		return err
	}
}

// unixPrefix begins the address of a unix socket, before its path.
const unixPrefix = "unix:"

func isUnix(value string) bool { return strings.HasPrefix(value, unixPrefix) }

// mostUnix is how long the path of a unix socket may be: sun_path has 108 bytes on Linux, 104 on
// other systems, and ends with a zero.
const mostUnix = 103

func checkUnix(value string) error {
	switch path := strings.TrimPrefix(value, unixPrefix); {
	case !filepath.IsAbs(path) || strings.HasSuffix(path, "/") || strings.Contains(path, "\x00"):
		return fmt.Errorf("%q is no unix socket's path; such as unix:/run/spillgate/edge.sock", clip(value))
	case len(path) > mostUnix:
		return fmt.Errorf("%q is too long for a unix socket's path: %d bytes, of %d at most", clip(value), len(path), mostUnix)
	}
	return nil
}

// off turns off what has an address.
const off = "off"

// orOff reads an address as another function does, and "off" as none.
func orOff(dst *string, as func(*string) parseFunc) parseFunc {
	return func(value string) error {
		if *dst = ""; value == off {
			return nil
		}
		return as(dst)(value)
	}
}

func splitListen(value string) (host string, err error) {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return "", fmt.Errorf("%q is not an address to listen on; such as 127.0.0.1:8080, :8080 or unix:/run/spillgate/edge.sock", clip(value))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: port %q is not 0 to 65535", clip(value), clip(port))
	} else if _, err := netip.ParseAddr(host); host != "" && host != "localhost" && err != nil {
		return "", fmt.Errorf("%q: the host is an IP address of this machine, localhost, or nothing; port %d", clip(value), n)
	}
	return host, nil
}

func asURLs(dst *[]string, schemes ...string) parseFunc {
	return func(value string) error {
		*dst = splitList(value)
		if len(*dst) == 0 {
			return errors.New("is missing")
		}
		for _, s := range *dst {
			if err := checkURL(s, schemes); err != nil {
				return err
			}
		}
		return nil
	}
}

func asURL(dst *string, schemes ...string) parseFunc {
	return func(value string) error {
		if *dst = value; value == "" {
			return nil
		}
		return checkURL(value, schemes)
	}
}

// checkURL names no part of a URL that may hold a password.
func checkURL(s string, schemes []string) error {
	u, err := url.Parse(s)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && u.Path == "" {
		return fmt.Errorf("not a URL that starts with %s://", strings.Join(schemes, ":// or "))
	}
	return nil
}

func asPrefixes(dst *[]netip.Prefix) parseFunc {
	return func(value string) error {
		*dst = nil
		for _, s := range splitList(value) {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				ip, ipErr := netip.ParseAddr(s)
				if ipErr != nil || ip.Zone() != "" {
					return fmt.Errorf("%q is not a network; such as 10.0.0.0/8", clip(s))
				}
				p = netip.PrefixFrom(ip, ip.BitLen())
			}
			if p != p.Masked() { // many more would be trusted than the address that is written
				return fmt.Errorf("%q is no network, but an address in one; %s, or %s for the one address", s, p.Masked(), p.Addr())
			}
			*dst = append(*dst, p)
		}
		return nil
	}
}

func asLevel(dst *slog.Level) parseFunc {
	return func(value string) error {
		switch value {
		case "debug", "info", "warn", "error":
			return dst.UnmarshalText([]byte(value))
		}
		return fmt.Errorf("%q: one of debug, info, warn, error", clip(value))
	}
}

func asWord(dst *string, words ...string) parseFunc {
	return func(value string) error {
		*dst = value
		if !slices.Contains(words, value) {
			return fmt.Errorf("%q: one of %s", clip(value), strings.Join(words, ", "))
		}
		return nil
	}
}
