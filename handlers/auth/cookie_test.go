package auth

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestADuplicateCookieIsRejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines  []string
		secret string
		code   fault.Code
	}{
		"none":                    {nil, "", ""},
		"alone":                   {[]string{"sid=a"}, "a", ""},
		"among others":            {[]string{"x=1; sid=a;y=2"}, "a", ""},
		"in another line":         {[]string{"x=1", "sid=a"}, "a", ""},
		"twice the same":          {[]string{"sid=a; sid=a", "sid=a"}, "a", ""},
		"twice, and different":    {[]string{"sid=a; sid=b"}, "", fault.InvalidParameter},
		"different in lines":      {[]string{"sid=a", "sid=b"}, "", fault.InvalidParameter},
		"in quotes":               {[]string{`sid="a"`}, `"a"`, ""},
		"with an equals sign":     {[]string{"sid=a=b"}, "a=b", ""},
		"another case":            {[]string{"SID=a"}, "", ""},
		"a name that contains it": {[]string{"sid2=a; xsid=b"}, "", ""},
		"white space around":      {[]string{" sid = a ; x=1"}, "a", ""},
		"no value":                {[]string{"sid; sid=; x"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret, f := Cookie(http.Header{"Cookie": c.lines}, "sid")
			var code fault.Code
			if f != nil {
				code = f.Code
			}
			if secret != c.secret || code != c.code {
				t.Errorf("got %q, %q; want %q, %q", secret, code, c.secret, c.code)
			}
		})
	}
}

func TestSessionCookiesAreRemovedAndOthersPass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after []string }{
		"none":             {nil, nil},
		"only the session": {[]string{"sid=a"}, nil},
		"both cookies":     {[]string{"sid=a; sid_passkey=b"}, nil},
		"among others":     {[]string{"x=1; sid=a;y=2", "sid=b", "z"}, []string{"x=1; y=2", "z"}},
		"in any case":      {[]string{"SID=a; Sid =b; x=1"}, []string{"x=1"}},
		"without =":        {[]string{"sid; x=1"}, []string{"x=1"}},
		"only others":      {[]string{"sidx=a; x=sid"}, []string{"sidx=a; x=sid"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"Cookie": c.before}
			dropCookies(header, "sid", CeremonyCookie("sid"))
			if !reflect.DeepEqual(header["Cookie"], c.after) {
				t.Errorf("%q became %q, want %q", c.before, header["Cookie"], c.after)
			}
		})
	}
}

// FuzzCookies checks that nothing of a removed cookie remains in any form of the
// header.
func FuzzCookies(f *testing.F) {
	f.Add("sid=a; x=1", "sid=b")
	f.Add(" sid = a ;;SID=b", "sid;sid_passkey=")
	f.Add("x=1;\tsid\t=a", "")
	f.Fuzz(func(t *testing.T, one, two string) {
		header := http.Header{"Cookie": {one, two}}
		secret, refused := Cookie(header, "sid")
		if refused != nil && secret != "" {
			t.Errorf("refused, but returned %q", secret)
		}
		dropCookies(header, "sid", "sid_passkey")
		for _, name := range []string{"sid", "SID", "sid_passkey"} {
			if left, f := Cookie(header, name); left != "" || f != nil {
				t.Errorf("%q is left of %q, %q", left, one, two)
			}
		}
		for _, cookie := range (&http.Request{Header: header}).Cookies() {
			if isOneOf(cookie.Name, []string{"sid", "sid_passkey"}) {
				t.Errorf("net/http finds %v in %q", cookie, header["Cookie"])
			}
		}
	})
}
