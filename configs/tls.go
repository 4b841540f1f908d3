package configs

// ListenTLS is how a listener is encrypted, by files.
type ListenTLS struct {
	Cert, Key string // "": it speaks in clear
	ClientCA  string // who signs clients' certificates; "": they have none
}

// Set says that it is.
func (t *ListenTLS) Set() bool { return t.Cert != "" }

// table is the settings under a key such as "tls"; listener is of whom they are, and clients what theirs
// are for.
func (t *ListenTLS) table(at, listener, clients string) []setting {
	return []setting{
		{key: at + ".cert", usage: "`file` with the certificate of " + listener + ", and of those that signed it; it is read again when it changes (default: no TLS)", path: true, parse: asText(&t.Cert)},
		{key: at + ".key", usage: "`file` with its key", path: true, parse: asText(&t.Key)},
		{key: at + ".client_ca", usage: "`file` with the certificates that sign clients', " + clients, path: true, parse: asText(&t.ClientCA)},
	}
}

// check finds what contradicts itself; it is false where something does.
func (t *ListenTLS) check(l *loader, at string) bool {
	switch {
	case (t.Cert == "") != (t.Key == ""):
		key, other := at+".cert", at+".key"
		if t.Cert == "" {
			key, other = other, key
		}
		l.mistake(key, "E203", "a certificate is both", "%s is not set", other)
	case t.ClientCA != "" && !t.Set():
		l.mistake(at+".client_ca", "E203", at+".cert and "+at+".key", "clients show no certificate where the listener has none")
	default:
		return true
	}
	return false
}
