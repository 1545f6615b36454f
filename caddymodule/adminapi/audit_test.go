package adminapi_test

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestEveryChangeIsInTheAuditLog(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	var created struct {
		ID     string `json:"id"`
		UserID string `json:"user_id"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": key.UserID, "name": "second"}, &created)
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+created.ID+"/rotate", map[string]any{"grace": 60}, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+created.ID+"/limits", map[string]any{"streams": 1}, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+created.UserID+"/limits", map[string]any{"streams": 1}, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+created.UserID+"/token", nil, nil)
	g.MustAdmin(t, http.MethodDelete, "/modelgate/users/"+created.UserID+"/token", nil, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+created.ID+"/revoke", nil, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+created.UserID+"/disable", nil, nil)
	for action, keyID := range map[string]string{
		"key.create": created.ID, "key.rotate": created.ID, "key.revoke": created.ID, "user.disable": "",
		"key.limit": created.ID, "user.limit": "", "token.mint": "", "token.revoke": "",
	} {
		g.WaitLine(t, func(l gatetest.Line) bool {
			return l.Text("logger") == "modelgate.audit" && l.Text("msg") == action && l.Text("key_id") == keyID &&
				l.Text("user_id") == created.UserID && l.Text("actor") == "operator"
		})
	}
}
