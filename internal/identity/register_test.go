package identity

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestARegisteredUserCanLogIn(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user := must(f.Register(ctx, "Ann", goodPassword, testDevice, LoginLimits{}))(t)
	if user.Name != "Ann" || user.Role != "" || user.Disabled || !strings.HasPrefix(user.ID, "usr_") {
		t.Errorf("%+v", user)
	}
	if entry := f.login(t, "ann"); entry.Account.UserID != user.ID {
		t.Errorf("%+v", entry)
	}
	for _, c := range []struct {
		what, name, password string
		want                 fault.Code
		param                string
	}{
		{"a name that is taken, in another case", "ANN", goodPassword, fault.Conflict, "name"},
		{"a name with a space", "a b", goodPassword, fault.InvalidParameter, "name"},
		{"no name", "", goodPassword, fault.InvalidParameter, "name"},
		{"a name that could be an id", "usr_x", goodPassword, fault.InvalidParameter, "name"},
		{"a weak password", "bob", "password1", fault.InvalidParameter, "password"},
		{"the name as the password", "bobbobbob", "BobBobBob", fault.InvalidParameter, "password"},
		{"no password", "bob", "", fault.MissingParameter, "password"},
	} {
		_, err := f.Register(ctx, c.name, c.password, testDevice, LoginLimits{})
		if codeOf(err) != c.want || paramOf(err) != c.param {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if users := must(f.Users(ctx))(t); len(users) != 1 {
		t.Errorf("%d users", len(users))
	}
}

func TestOneOfParallelRegistrationsOfANameSucceeds(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	var wg sync.WaitGroup
	var created atomic.Int32
	for i := range password.MaxAnonymous {
		wg.Go(func() {
			switch _, err := f.Register(t.Context(), "ann", goodPassword, address(i), LoginLimits{}); codeOf(err) {
			case "":
				created.Add(1)
			case fault.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if users := must(f.Users(t.Context()))(t); created.Load() != 1 || len(users) != 1 {
		t.Errorf("%d registrations, %d users", created.Load(), len(users))
	}
}

func TestTheSetupCodeCreatesTheFirstUserOnce(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	setup := func(code, name, password string) error { return second(f.Setup(ctx, code, name, password)) }

	refusedAs(t, "before there is a code", setup("", "ann", goodPassword), fault.VerificationFailed)
	old := must(f.SetupCode(ctx))(t).Reveal()
	code := must(f.SetupCode(ctx))(t).Reveal()
	if due := must(f.SetupDue(ctx))(t); !due {
		t.Error("no set-up is due, although there is no user")
	}
	for what, wrong := range map[string]string{
		"none": "", "invalid": "x", "a replaced code": old, "one digit short": code[:len(code)-1],
		"a reset code's hash": must(credential.DrawOneTime(), nil)(t).Reveal(),
	} {
		refusedAs(t, what, setup(wrong, "ann", goodPassword), fault.VerificationFailed)
	}
	refusedAs(t, "a weak password", setup(code, "ann", "password"), fault.InvalidParameter)
	refusedAs(t, "an invalid name", setup(code, "a b", goodPassword), fault.InvalidParameter)

	// The code as a user may type it. One of several parallel calls succeeds.
	typed := strings.ToLower(strings.ReplaceAll(code, "-", " "))
	var wg sync.WaitGroup
	var created atomic.Int32
	for _, name := range []string{"ann", "bob", "cat", "dan"} {
		wg.Go(func() {
			switch err := setup(typed, name, goodPassword); codeOf(err) {
			case "":
				created.Add(1)
			case fault.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	users := must(f.Users(ctx))(t)
	if created.Load() != 1 || len(users) != 1 || users[0].Role != Admin {
		t.Fatalf("%d users were created: %+v", created.Load(), users)
	}
	f.login(t, users[0].Name)
	refusedAs(t, "the code again", setup(code, "eve", goodPassword), fault.Conflict)
	if next := must(f.SetupCode(ctx))(t); next != "" {
		t.Error("a set-up code although there is a user")
	}
	if due := must(f.SetupDue(ctx))(t); due {
		t.Error("set-up is due although there is a user")
	}
}

func TestOnlyTheFirstAdministratorEndsTheSetUp(t *testing.T) {
	t.Parallel()
	others := map[string]func(context.Context, fixture) error{
		"a registration": func(ctx context.Context, f fixture) error {
			return second(f.Register(ctx, "eve", goodPassword, testDevice, LoginLimits{}))
		},
		"an operator's user": func(ctx context.Context, f fixture) error {
			return second(f.CreateUser(ctx, "operator", "eve"))
		},
		"an operator's user with a password": func(ctx context.Context, f fixture) error {
			return second(f.CreateUserWithPassword(ctx, "operator", "eve", goodPassword))
		},
	}
	for what, makeUser := range others {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprint(what, " ", restarted), func(t *testing.T) {
				t.Parallel()
				f := newPeople(t)
				ctx := t.Context()
				code := must(f.SetupCode(ctx))(t)
				if err := makeUser(ctx, f); err != nil {
					t.Fatal(err)
				}
				if restarted {
					code = must(f.SetupCode(ctx))(t)
				}
				if due := must(f.SetupDue(ctx))(t); !due || code == "" {
					t.Fatalf("the user has ended the set-up: %v %q", due, code)
				}
				if admin, err := f.Setup(ctx, code.Reveal(), "ann", goodPassword); err != nil || admin.Role != Admin {
					t.Fatalf("%+v, %v", admin, err)
				}
				if due := must(f.SetupDue(ctx))(t); due || must(f.SetupCode(ctx))(t) != "" {
					t.Error("set-up is due although there is an administrator")
				}
				refusedAs(t, "a second administrator", second(f.Setup(ctx, code.Reveal(), "bob", goodPassword)), fault.Conflict)
			})
		}
	}
}

// TestNamesLikeFlagsOrPathStepsAreRefused checks names because operators use them as arguments of
// commands and in paths.
func TestNamesLikeFlagsOrPathStepsAreRefused(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	for _, bad := range []string{".", "..", "-", "--json", "-ann", "\uff0dann", "\uff0e\uff0e"} {
		for what, make := range map[string]func() error{
			"created": func() error { return second(f.CreateUser(ctx, "operator", bad)) },
			"created with a password": func() error {
				return second(f.CreateUserWithPassword(ctx, "operator", bad, goodPassword))
			},
			"registered": func() error { return second(f.Register(ctx, bad, goodPassword, testDevice, LoginLimits{})) },
		} {
			if err := make(); codeOf(err) != fault.InvalidParameter || paramOf(err) != "name" {
				t.Errorf("%q is %s: %v", bad, what, err)
			}
		}
	}
	for _, good := range []string{"...", ".ann", "a-b", "a.", "_-"} {
		f.user(t, good)
	}
}

func TestCreatingAUserWithAPasswordIsAtomic(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	create := func(name, password string) error {
		return second(f.CreateUserWithPassword(ctx, "operator", name, password))
	}
	refusedAs(t, "a weak password", create("ann", "short"), fault.InvalidParameter)
	refusedAs(t, "no password", create("ann", ""), fault.MissingParameter)
	f.engine.Plan(storagetest.UnknownLost)
	refusedAs(t, "a store that fails", create("ann", goodPassword), fault.StoreUnavailable)
	refusedAs(t, "the user after the failures", second(f.User(ctx, "ann")), fault.NotFound)
	before := f.engine.Commits()
	expect(t, "the password", create("ann", goodPassword), "")
	if got := f.engine.Commits() - before; got != 1 {
		t.Errorf("the user was created in %d transactions, want 1", got)
	}
	f.login(t, "ann")
	refusedAs(t, "a name that is taken", create("Ann", otherPassword), fault.Conflict)
	f.login(t, "ann")
}
