// Package replay replays a web server's access log over five regions on virtual
// time, at limits that bind, and says how accurate each consistency level is
// (target A19).
package replay
