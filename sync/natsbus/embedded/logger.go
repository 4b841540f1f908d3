package embedded

import (
	"fmt"
	"log/slog"
)

// logger hands the server's words to slog. What the server calls a notice is
// of interest to whoever debugs it.
type logger struct {
	to    *slog.Logger
	fatal chan string // holds the first reason why the server cannot go on
}

func newLogger(to *slog.Logger) *logger {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &logger{to: to.With("component", "nats-server"), fatal: make(chan string, 1)}
}

func (l *logger) Noticef(format string, v ...any) { l.to.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.to.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.to.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(string, ...any)           {} // switched off
func (l *logger) Tracef(string, ...any)           {} // switched off

// Fatalf does not end the process, which is not the server's to end.
func (l *logger) Fatalf(format string, v ...any) {
	why := fmt.Sprintf(format, v...)
	l.to.Error(why)
	select {
	case l.fatal <- why:
	default:
	}
}
