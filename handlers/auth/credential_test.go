package auth

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTwoDifferentCredentialsAreRejected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header http.Header
		key    string
		code   fault.Code
	}{
		"nothing":                   {http.Header{}, "", fault.Unauthorized},
		"x-api-key":                 {http.Header{"X-Api-Key": {"a"}}, "a", ""},
		"bearer":                    {http.Header{"Authorization": {"Bearer a"}}, "a", ""},
		"bearer in any case":        {http.Header{"Authorization": {"bEARER a"}}, "a", ""},
		"bearer with more spaces":   {http.Header{"Authorization": {"Bearer   a"}}, "a", ""},
		"bearer with a tab":         {http.Header{"Authorization": {"Bearer\ta"}}, "", fault.Unauthorized},
		"both equal":                {http.Header{"Authorization": {"Bearer a"}, "X-Api-Key": {"a"}}, "a", ""},
		"repeated equal":            {http.Header{"X-Api-Key": {"a", "a"}}, "a", ""},
		"both different":            {http.Header{"Authorization": {"Bearer a"}, "X-Api-Key": {"b"}}, "", fault.InvalidParameter},
		"both, one empty bearer":    {http.Header{"Authorization": {"Bearer "}, "X-Api-Key": {"b"}}, "", fault.InvalidParameter},
		"both, different case":      {http.Header{"Authorization": {"Bearer a"}, "X-Api-Key": {"A"}}, "", fault.InvalidParameter},
		"x-api-key twice":           {http.Header{"X-Api-Key": {"a", "b"}}, "", fault.InvalidParameter},
		"the second one empty":      {http.Header{"X-Api-Key": {"a", ""}}, "", fault.InvalidParameter},
		"bearer twice":              {http.Header{"Authorization": {"Bearer a", "Bearer b"}}, "", fault.InvalidParameter},
		"bearer and basic":          {http.Header{"Authorization": {"Bearer a", "Basic a"}}, "", fault.InvalidParameter},
		"basic alone":               {http.Header{"Authorization": {"Basic a"}}, "", fault.Unauthorized},
		"basic beside x-api-key":    {http.Header{"Authorization": {"Basic a"}, "X-Api-Key": {"a"}}, "", fault.InvalidParameter},
		"empty x-api-key":           {http.Header{"X-Api-Key": {""}}, "", fault.Unauthorized},
		"empty beside a bearer":     {http.Header{"X-Api-Key": {""}, "Authorization": {"Bearer a"}}, "a", ""},
		"an access token elsewhere": {http.Header{"Cookie": {"session=a"}, "X-Auth": {"a"}, "Api-Key": {"a"}}, "", fault.Unauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, f := Credential(c.header)
			var code fault.Code
			if f != nil {
				code = f.Code
			}
			if key != c.key || code != c.code {
				t.Errorf("got %q, %q; want %q, %q", key, code, c.key, c.code)
			}
		})
	}
}
