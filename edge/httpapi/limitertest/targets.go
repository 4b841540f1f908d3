package limitertest

// LoginTargets are targets of requests as clients write them, each of which some origin, or
// a gateway and the origin behind it, serves as "/login": a rule for that counts them all.
var LoginTargets = []string{
	"/login", "/login?x=1", "/%6cogin", "/%6Cogin?", "/%6c%6f%67%69%6e",
	"//login", "///login", "/./login", "/x/../login", "/x/%2e%2E/login", "/..//login", "/login/.", "/login/x/..", "/login/x/../.",
	"/a%2Fb/../login", "/a%2fb/%2e%2e/login", "/x%2F..%2Flogin", "/%2Flogin", "/x/..%2Flogin", "/a/b%2F..%2F../login",
	"//x/login", "//x:80/login", "///x//login", "//x%2Fy/login", "/%2F/../x/../login",
	`\login`, `/\login`, `\\x/login`, `/\x/login`, `/x\..\login`, "/%5Clogin", "/x%5c..%5clogin", `//x\login`,
	"/login;x", "/login;", "/login;a=1;b=2?c", "/;x/login", "/x/..;/login", "/x/..;y/login;z", "/login%3Bx", "/x;%2F../login", "//x/login;y", `/x\..;\login`, "/login;a%2Fb", "/%6cogin;x",
	"http://h/login", "HTTP://h:80/%6cogin", "https://u@h//login", "http://h/x/../login?y", "http:///login", `http://h\login`, `http://h\x/../login`, "http://h//x/login", "http://h/login;x", "http://h/x%2F..%2Flogin",
	"/login#x", "/#/../login", "/x#y/../login?z", "/login;x#y", "http://h/login#x", "http://h/#/../login", "http://h/x#/../login", "#/../login",
	`//x\a/login`, "//x%5Ca/login", "http:///x/login", `http:///\x/login`, "http:login", "http:x/../login",
	"http:/login", `http:\login`, "http:/x/login", "https:/login;x", "x:/x/../login", `http://h\x#y/../../login`, `http://h\..\login/x/..`,
	"*/../login", "x/../login", "login", "./login",
}

// OtherTargets are such that may have no path at all: a rule for all paths counts them.
var OtherTargets = []string{"*", "/", "?", "?x", "#", "#x", "http://h", "http://h?x", "http://h#x", `http://h\`, ";", "/;", ".", "..", "%", "/%", "//", "///", "/.", "/..", `\`, "%2F", "h:443", "/a/.", "/%00", "://", "http://"}
