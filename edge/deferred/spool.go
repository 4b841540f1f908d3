package deferred

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// spool is a request's body that is remembered as it is read, until it is known that the
// upstream has it: who denies a request may read some of it to keep the connection.
type spool struct {
	io.ReadCloser
	most int64

	mu   sync.Mutex // guards what follows: an upstream may read on when the handler is done
	kept bytes.Buffer
	lost bool // it is longer than what is kept, or the upstream has it
}

// errLost says that a body is not known whole.
var errLost = errors.New("the body is too long, or gone")

func (s *spool) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost = s.lost || int64(s.kept.Len()+n) > s.most; s.lost {
		s.kept = bytes.Buffer{}
	} else {
		s.kept.Write(b[:n])
	}
	return n, err
}

// stop has nothing more remembered.
func (s *spool) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost, s.kept = true, bytes.Buffer{}
}

// all is the whole body.
func (s *spool) all() ([]byte, error) {
	if _, err := io.Copy(io.Discard, io.LimitReader(s, s.most+1)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		return nil, errLost
	}
	return s.kept.Bytes(), nil
}
