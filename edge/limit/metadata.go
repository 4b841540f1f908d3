package limit

// SetCall is SetHTTP for a call whose header has its names in lower case, as
// gRPC's metadata does. It allocates nothing.
func (req *Request) SetCall(method, path, host, clientIP string, metadata map[string][]string) {
	req.SetHTTP(method, path, host, clientIP, nil)
	if len(metadata) < len(req.ns.headers)/2 {
		req.putAll(metadata, req.ns.lowered)
		return
	}
	var room [64]byte
	for i := range req.ns.headers {
		h := &req.ns.headers[i]
		name := lowerASCII(room[:0], h.name)
		if v := metadata[string(name)]; len(v) > 0 {
			req.put(h.slot, v[0])
		}
	}
}

// lowerASCII appends the name of a header in lower case.
func lowerASCII(dst []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
