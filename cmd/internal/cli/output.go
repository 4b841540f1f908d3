package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Output is how a command writes its result: the flag -o.
type Output string

// The values of Output.
const (
	OutputText Output = "text"
	OutputJSON Output = "json"
)

// OutputFlag defines -o, --output on cmd. The value is good once the command
// runs; a wrong one is a mistake of usage.
func OutputFlag(cmd *cobra.Command) *Output {
	o := OutputText
	cmd.Flags().VarP(&o, "output", "o", `how the result is written: "text", or "json", one object on stdout`)
	return &o
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *Output) Type() string { return "text|json" }

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	switch v := Output(s); v {
	case OutputText, OutputJSON:
		*o = v
		return nil
	}
	return fmt.Errorf("one of %s, %s", OutputText, OutputJSON)
}
