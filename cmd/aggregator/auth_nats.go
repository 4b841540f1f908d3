package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/sync"
)

//go:embed users.conf.tmpl
var usersTemplate string

// natsUsers are who may enter the NATS servers: the public halves of their keys.
type natsUsers struct {
	Operator string        `json:"operator"`
	Regions  []*natsRegion `json:"regions"`
}

type natsRegion struct {
	Name        string    `json:"name"`
	JetStream   string    `json:"jetstream"` // the link of its JetStream leaf
	Aggregators string    `json:"aggregators"`
	PoPs        []natsPoP `json:"pops"`
}

type natsPoP struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// What is in the folder of `auth init`.
const (
	usersState = "users.json"
	usersConf  = "users.conf"
)

const usersHead = `# Who may say and hear what at NATS, made by: aggregator auth init, and add-pop.
# deploy/nats/users.conf is the same for an example, and says why each line is there.
# Nothing here is secret: the seeds are beside it, a file each, for those whom they stand for.

`

// render is the users' part of the servers' configuration, which deploy/nats includes.
func (u *natsUsers) render() ([]byte, error) {
	others := func(name string) (out []string) {
		for _, r := range u.Regions {
			if r.Name != name {
				out = append(out, r.Name)
			}
		}
		return out
	}
	t, err := template.New(usersConf).Funcs(template.FuncMap{"others": others}).Parse(usersTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, u)
	return b.Bytes(), err
}

// region is the region of a name; nil: there is none.
func (u *natsUsers) region(name string) *natsRegion {
	if i := slices.IndexFunc(u.Regions, func(r *natsRegion) bool { return r.Name == name }); i >= 0 {
		return u.Regions[i]
	}
	return nil
}

// add adds a PoP, and its region where there is none yet; key makes a user's key.
func (u *natsUsers) add(pop string, key func(user string) (string, error)) error {
	region, name, ok := strings.Cut(pop, "/")
	for _, token := range []string{region, name} {
		if err := deltasync.ValidToken(token); !ok || err != nil {
			return fmt.Errorf("%q is no PoP: want REGION/POP, such as eu/ams, each of a-z, 0-9 and -", pop)
		}
	}
	var err error
	r := u.region(region)
	if r == nil {
		r = &natsRegion{Name: region}
		if r.JetStream, err = key("js-" + region); err != nil {
			return err
		}
		if r.Aggregators, err = key("agg-" + region); err != nil {
			return err
		}
		u.Regions = append(u.Regions, r)
	}
	if slices.ContainsFunc(r.PoPs, func(p natsPoP) bool { return p.Name == name }) {
		return fmt.Errorf("there is a PoP %s already", pop)
	}
	p := natsPoP{Name: name}
	if p.Key, err = key("pop-" + region + "_" + name); err == nil {
		r.PoPs = append(r.PoPs, p)
	}
	return err
}

func newAuthInitCommand() *cobra.Command {
	var pops []string
	dir := ""
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the users of NATS: a key for each PoP, region and operator, with what it may do",
		Long: `Make the users of NATS: a key for each PoP, for each region's aggregators and for the link
of its JetStream leaf, and one for operators; and users.conf, which says to the servers what
each may publish and hear, and which the other files of deploy/nats include. A PoP counts in
its own name and its own region, and reads rules; it writes none, and reads nobody else's keys.

The seeds are in files of their own, for whom they stand for alone: pop-eu_ams.nk is the
nats.nkey of the edges of eu/ams, agg-eu.nk of the aggregators of eu, js-eu.nk of its leaf.`,
		Example: "  aggregator auth init --pops eu/ams,eu/fra,us/iad --dir nats-users\n  aggregator auth add-pop us/ord --dir nats-users",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := os.Stat(filepath.Join(dir, usersState)); !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(fmt.Errorf("%s is there already: auth add-pop adds to it", filepath.Join(dir, usersState)), err)
			}
			keys := newSeeds(dir)
			users := &natsUsers{}
			var err error
			if users.Operator, err = keys.make("operator"); err != nil {
				return err
			}
			return keys.save(cmd, users, pops)
		},
	}
	cmd.Flags().StringSliceVar(&pops, "pops", nil, "the `PoPs`, each as REGION/POP, separated by commas")
	cmd.Flags().StringVar(&dir, "dir", "nats-users", "`folder` for what is made")
	_ = cmd.MarkFlagRequired("pops") // it is there
	return cmd
}

func newAuthAddPopCommand() *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "add-pop REGION/POP...",
		Short: "Add PoPs to the users of NATS, and their regions where these are new",
		Long: `Add PoPs to the users of NATS, and their regions where these are new. Servers take the new
users.conf without a restart (nats-server --signal reload); nobody's key changes. But where a
region is new restart the JetStream leafs of the others, too: nats-server gives a link that
is there no new rights, and they could not answer who writes rules from there. users.conf is made
anew, so edits in it are lost. Run one at a time: two at once lose each other's PoPs.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(filepath.Join(dir, usersState))
			if err != nil {
				return fmt.Errorf("%w: %w: auth init makes it", cli.ErrInvalidConfig, err)
			}
			users := &natsUsers{}
			if err := json.Unmarshal(text, users); err != nil {
				return fmt.Errorf("%w: %s: %w", cli.ErrInvalidConfig, filepath.Join(dir, usersState), err)
			}
			return newSeeds(dir).save(cmd, users, args)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "nats-users", "`folder` that auth init has made")
	return cmd
}

// seeds are keys that are made, and not yet kept.
type seeds struct {
	dir  string
	made map[string][]byte // by user
}

func newSeeds(dir string) *seeds { return &seeds{dir: dir, made: map[string][]byte{}} }

// make makes a user's key, and returns its public half.
func (s *seeds) make(user string) (public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", user, err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", user, err)
	}
	s.made[user] = seed
	return pair.PublicKey()
}

// save adds PoPs to users, and keeps it: the seeds first, then who there is.
func (s *seeds) save(cmd *cobra.Command, users *natsUsers, pops []string) error {
	for _, pop := range pops {
		if err := users.add(pop, s.make); err != nil {
			return err
		}
	}
	conf, err := users.render()
	if err != nil {
		return err
	}
	state, err := json.MarshalIndent(users, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	for user, seed := range s.made {
		if err := create(filepath.Join(s.dir, user+".nk"), append(seed, '\n')); err != nil {
			return err
		}
	}
	if err := replaceFile(filepath.Join(s.dir, usersConf), append([]byte(usersHead), conf...)); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(s.dir, usersState), append(state, '\n')); err != nil {
		return err
	}
	names := make([]string, 0, len(s.made))
	for user := range s.made {
		names = append(names, user+".nk")
	}
	slices.Sort(names)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s has %s, for the servers (deploy/nats), and seeds for those whom they stand for: %s\n", s.dir, usersConf, strings.Join(names, ", "))
	return err
}

// create makes a file for its owner alone, and replaces none.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: nobody is known by it, as a run before did not come to its end: take it away, and run this again", err)
	case err != nil:
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// replaceFile puts a text in the place of a file, whole, for its owner alone.
func replaceFile(path string, text []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(next.Name()))
	}
	return err
}
