package identity

import (
	"crypto/rand"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTwoAdministratorsCannotRemoveEachOther(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	for range 20 {
		ann, bob := must(f.CreateUser(ctx, "operator", "ann-"+rand.Text()))(t), must(f.CreateUser(ctx, "operator", "bob-"+rand.Text()))(t)
		for _, user := range []User{ann, bob} {
			if made := must(f.SetRole(ctx, "operator", user.ID, Admin))(t); made.Role != Admin {
				t.Fatalf("%+v", made)
			}
		}
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() { _, errs[0] = f.SetRole(ctx, ann.ID, bob.ID, "") })
		both.Go(func() { _, errs[1] = f.SetUserDisabled(ctx, bob.ID, ann.ID, true) })
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("of two administrators who remove each other, %v and %v", errs[0], errs[1])
		}
		for _, err := range errs {
			if err != nil {
				refusedAs(t, "the later one", err, fault.Forbidden)
			}
		}
	}
}
