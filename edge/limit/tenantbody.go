package limit

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// tenantBody is what a store keeps of what a tenant has, beside whose it is and when it ends.
type tenantBody struct {
	Tier     string  `json:"tier,omitempty"`
	Multiply float64 `json:"multiply,omitempty"`
}

// Body is what the tenant has, in JSON; nil of one that has nothing.
func (e *TenantEntry) Body() []byte {
	if e.Deleted {
		return nil
	}
	b, _ := json.Marshal(tenantBody{e.Tier, e.Multiply}) // NaN and infinity, which Check refuses, are none
	return b
}

// ReadBody reads what Body wrote; what is not known is an error.
func (e *TenantEntry) ReadBody(b []byte) error {
	var body tenantBody
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	if err := in.Decode(&body); err != nil {
		return fmt.Errorf("a tenant's body: %w", err)
	}
	e.Tier, e.Multiply = body.Tier, body.Multiply
	return nil
}
