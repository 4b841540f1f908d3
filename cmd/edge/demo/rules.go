package demo

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
)

// Rules are the demo's own, as an operator would write them.
//
//go:embed rules.yaml
var Rules string

// rulesText is a rules file as it was read: every edge compiles its own set,
// all of the same text.
type rulesText struct {
	name string
	text []byte
}

// readRules reads a rules file; path "" stands for the demo's own.
func readRules(path string) (rulesText, error) {
	if path == "" {
		return rulesText{"rules.yaml", []byte(Rules)}, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return rulesText{}, fmt.Errorf("rules: %w at %s", configs.ErrNoRules, path)
	}
	if err != nil {
		return rulesText{}, fmt.Errorf("rules: %w", err)
	}
	defer f.Close()
	const most = 8 << 20 // above what configs accepts, so that it says what is wrong
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return rulesText{}, fmt.Errorf("rules: %w", err)
	}
	return rulesText{path, text}, nil
}

func (r rulesText) compile() (*limit.Set, error) { return configs.ParseRules(r.name, r.text) }

// own says that these are the demo's rules and not the user's.
func (r rulesText) own() bool { return string(r.text) == Rules }
