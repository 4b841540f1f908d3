package adminapi

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPIDocument []byte

// openAPI is GET /admin/v1/openapi.json: what this API is, for programs (OpenAPI 3.1).
func openAPI(w http.ResponseWriter, _ *http.Request) *Problem {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIDocument) // a caller that is gone cannot be told so
	return nil
}
