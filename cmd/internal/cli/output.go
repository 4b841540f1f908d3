package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

// Output is how a command writes its result: the flag -o.
type Output string

// The values of Output.
const (
	OutputText Output = "text" // for people: a table, where there is more than one line
	OutputJSON Output = "json"
	OutputYAML Output = "yaml"
)

// OutputFlag defines -o, --output on cmd. The value is good once the command
// runs; a wrong one is a mistake of usage.
func OutputFlag(cmd *cobra.Command) *Output {
	o := OutputText
	cmd.Flags().VarP(&o, "output", "o", `how the result is written: "text", or "json" or "yaml", one object on stdout`)
	return &o
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *Output) Type() string { return "text|json|yaml" }

// Set implements pflag.Value.
func (o *Output) Set(s string) error {
	switch v := Output(s); v {
	case OutputText, OutputJSON, OutputYAML:
		*o = v
		return nil
	case "table": // as kubectl's users may say
		*o = OutputText
		return nil
	}
	return fmt.Errorf("one of %s, %s, %s", OutputText, OutputJSON, OutputYAML)
}

// Write writes a result, for programs or, by text, for people.
func (o *Output) Write(out io.Writer, result any, text func(io.Writer) error) error {
	switch *o {
	case OutputJSON:
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(result)
	case OutputYAML:
		b, err := json.Marshal(result)
		if err != nil {
			return err
		}
		if b, err = configs.JSONToYAML(b); err != nil {
			return err
		}
		_, err = out.Write(b)
		return err
	}
	return text(out)
}
