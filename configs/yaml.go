package configs

import "github.com/goccy/go-yaml"

// JSONToYAML is a JSON text as YAML.
func JSONToYAML(text []byte) ([]byte, error) { return yaml.JSONToYAML(text) }
