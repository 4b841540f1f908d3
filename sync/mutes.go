package deltasync

import "sync"

// Mutes is who is not listened to, of those who send something else than frames: as Inbox has it.
type Mutes struct {
	mu        sync.Mutex // guards what follows
	offenders offenders
}

// NewMutes has nobody muted.
func NewMutes() *Mutes { return &Mutes{offenders: newOffenders()} }

// Muted says why a sender is not listened to now; nil: it is.
func (m *Mutes) Muted(now int64, from Sender) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offenders.muted(now, from)
}

// Refuse notes that what a sender sent was refused. It returns why, as a *MutedError where it is
// muted from now on.
func (m *Mutes) Refuse(now int64, from Sender, why error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if term := m.offenders.refuse(now, from, why); term > 0 {
		return &MutedError{Sender: from, For: term, Err: why}
	}
	return why
}

// Good notes that what a sender sent was taken.
func (m *Mutes) Good(now int64, from Sender) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offenders.good(now, from)
}
