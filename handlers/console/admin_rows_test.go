package console

import (
	"net/http"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
)

// onlyOperator are the operations that the administration does not offer, on purpose.
var onlyOperator = []string{
	"GET nodes",
	"GET backup", "POST backup/completed", "POST secret/rotate", // the whole store
	"POST users", "POST users/{user}/token", "POST keys", "POST keys/{key}/rotate", // secrets of others
	"GET tasks/unfinished", "POST tasks/watch", // for commands that wait
}

// TestEveryOperationIsOfferedToRolesOrOnlyToOperators ensures that a new operation gets its row, and
// a row its roles.
func TestEveryOperationIsOfferedToRolesOrOnlyToOperators(t *testing.T) {
	t.Parallel()
	offered := make(map[string]bool)
	for _, row := range adminRoutes {
		name := row.method + " " + row.path
		offered[name] = true
		if len(row.roles) == 0 || row.asks == nil {
			t.Errorf("%s has no roles or no protection", name)
		}
		if !slices.Equal(row.roles[:1], adminRoles) {
			t.Errorf("%s is not for administrators", name)
		}
		if operation := adminapi.Find(row.method, row.path); row.method != http.MethodGet && !operation.HasOwner() &&
			!slices.Contains([]string{"POST verify", "POST backends/{backend}/check", "POST backends/{backend}/drain", "POST backends/{backend}/enable"}, name) {
			t.Errorf("%s does not say on whose account it acts", name)
		}
	}
	for _, name := range adminapi.Names() {
		if offered[name] == slices.Contains(onlyOperator, name) {
			t.Errorf("%s is not offered and not in the list of the operator, or both", name)
		}
	}
}

func TestARowWithoutRolesServesNobody(t *testing.T) {
	t.Parallel()
	for _, rt := range administration() {
		if rt.roles == nil {
			t.Errorf("%s serves every user", rt.path)
		}
	}
}
