package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// node is a node of a test.
type node struct {
	*Directory
	line  *storagetest.Line
	store *storage.Store
}

func startNodes(t *testing.T, n int) []*node {
	t.Helper()
	open := memory.NewShared()
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = startNode(t, open(), testKeyring)
	}
	time.Sleep(time.Second)
	return nodes
}

func startNode(t *testing.T, engine storage.Engine, keys *seal.Keyring) *node {
	t.Helper()
	n := &node{line: &storagetest.Line{Engine: engine}}
	n.store = storage.New(n.line, storage.Options{})
	t.Cleanup(func() { _ = n.store.Close() })
	err := n.store.Join(t.Context(), storage.Node{Name: t.Name()})
	if err == nil {
		n.Directory, err = Open(t.Context(), n.store, keys, zap.NewNop())
	}
	if err != nil {
		t.Fatal(err)
	}
	n.store.Follow(storage.Follower{OnTopics: n.OnTopics, OnEnded: func(context.Context, int64) error { return nil }})
	return n
}

// admits reports whether a node would serve a call with this key, as the gateway decides.
func (n *node) admits(secret string) bool {
	_, known := n.Authenticate(secret)
	return known && n.store.Ready() == nil
}

// newKey returns a key that all nodes admit.
func newKey(t *testing.T, nodes []*node, user string, spec KeySpec) (Key, string) {
	t.Helper()
	key, secret, err := nodes[0].CreateKey(t.Context(), "operator", user, spec)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	for i, n := range nodes {
		if !n.admits(secret.Reveal()) {
			t.Errorf("node %d does not admit a key half a second after it was created", i)
		}
	}
	return key, secret.Reveal()
}

func newUser(t *testing.T, n *node, name string) User {
	t.Helper()
	user, err := n.CreateUser(t.Context(), "operator", name)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func revokeKey(ctx context.Context, n *node, _, key string) error {
	_, err := n.RevokeKey(ctx, "operator", key)
	return err
}

func disableUser(ctx context.Context, n *node, user, _ string) error {
	_, err := n.SetUserDisabled(ctx, "operator", user, true)
	return err
}

func TestARevocationIsInForceAtEveryNode(t *testing.T) {
	for what, take := range map[string]func(ctx context.Context, n *node, user, key string) error{
		"a revocation": revokeKey,
		"a rotation": func(ctx context.Context, n *node, _, key string) error {
			_, _, err := n.RotateKey(ctx, "operator", key, 0)
			return err
		},
		"a disabled user": disableUser,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := startNodes(t, 3)
				user := newUser(t, nodes[0], "ann")
				key, secret := newKey(t, nodes, "ann", KeySpec{})
				if err := take(t.Context(), nodes[1], user.ID, key.ID); err != nil {
					t.Fatal(err)
				}
				for i, n := range nodes {
					if n.admits(secret) {
						t.Errorf("node %d admits the key after %s", i, what)
					}
				}
			})
		})
	}
}

func TestNarrowedKeysAndTokensAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		user := newUser(t, nodes[0], "ann")
		key, secret := newKey(t, nodes, "ann", KeySpec{})
		rate := int64(7)
		if _, err := nodes[0].ChangeKeyLimits(t.Context(), "operator", key.ID, LimitsChange{RequestsPerSecond: &rate}); err != nil {
			t.Fatal(err)
		}
		if _, err := nodes[0].ChangeUserLimits(t.Context(), "operator", user.ID, LimitsChange{Streams: &rate}); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes {
			if p, _ := n.Authenticate(secret); p.OperatorLimits.RequestsPerSecond != rate || p.UserLimits.Streams != rate {
				t.Errorf("node %d has the limits %+v and %+v", i, p.OperatorLimits, p.UserLimits)
			}
		}

		token, err := nodes[2].MintToken(t.Context(), "operator", "ann")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		a, ok := nodes[0].AuthenticateToken(token.Reveal())
		if !ok {
			t.Fatal("another node does not know a token after half a second")
		}
		if _, err := nodes[1].SetRole(t.Context(), "operator", "ann", Support); err != nil { // ends the token
			t.Fatal(err)
		}
		if token, err = nodes[2].MintToken(t.Context(), "operator", "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if a, ok = nodes[0].AuthenticateToken(token.Reveal()); !ok || a.Role != Support {
			t.Fatalf("another node has the account %+v of the token", a)
		}
		if err := nodes[0].Logout(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes {
			if _, ok := n.AuthenticateToken(token.Reveal()); ok {
				t.Errorf("node %d accepts the token after the log-out", i)
			}
		}
	})
}

func TestANodeThatIsCutOffAdmitsNoRevokedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		newUser(t, nodes[0], "ann")
		key, secret := newKey(t, nodes, "ann", KeySpec{})
		_, other := newKey(t, nodes, "ann", KeySpec{})
		nodes[2].line.Cut(true)
		began := time.Now()
		if _, err := nodes[0].RevokeKey(t.Context(), "operator", key.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > seenPatience {
			t.Errorf("the revocation took %v while a node was cut off", took)
		}
		for i, n := range nodes {
			if n.admits(secret) {
				t.Errorf("node %d admits a revoked key", i)
			}
		}
		if nodes[2].admits(other) {
			t.Error("a node that is cut off admits calls")
		}
	})
}

// TestARepeatedRevocationWaitsForTheFirst repeats a change whose first attempt waits for a silent node.
func TestARepeatedRevocationWaitsForTheFirst(t *testing.T) {
	for what, take := range map[string]func(ctx context.Context, n *node, user, key string) error{
		"a revocation": revokeKey, "a disabled user": disableUser,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := startNodes(t, 3)
				user := newUser(t, nodes[0], "ann")
				key, secret := newKey(t, nodes, "ann", KeySpec{})
				nodes[2].line.Cut(true)
				first := make(chan error, 1)
				go func() { first <- take(t.Context(), nodes[0], user.ID, key.ID) }()
				time.Sleep(10 * time.Millisecond)
				if err := take(t.Context(), nodes[1], user.ID, key.ID); err != nil {
					t.Error(err)
				}
				if nodes[2].admits(secret) {
					t.Error("a node admits the key after the second answer")
				}
				if err := <-first; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAChangeThatIsNotSeenIsSaved cuts the node of a change off after its commit.
func TestAChangeThatIsNotSeenIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2)
		newUser(t, nodes[0], "ann")
		key, secret := newKey(t, nodes, "ann", KeySpec{})
		stop := time.AfterFunc(10*time.Millisecond, func() { nodes[0].line.Cut(true) })
		defer stop.Stop()
		_, err := nodes[0].RevokeKey(t.Context(), "operator", key.ID)
		if codeOf(err) != fault.StoreUnavailable || !strings.Contains(err.Error(), "the change is saved") {
			t.Errorf("got %v", err)
		}
		time.Sleep(500 * time.Millisecond)
		if nodes[1].admits(secret) {
			t.Error("the change was not saved")
		}
	})
}

// TestAKeyStaysIfItsChangeFails proves that a node which cannot reach the store for a moment does not
// forget a key that nothing has changed.
func TestAKeyStaysIfItsChangeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2)
		newUser(t, nodes[0], "ann")
		key, secret := newKey(t, nodes, "ann", KeySpec{})
		nodes[0].line.Cut(true)
		if _, err := nodes[0].RevokeKey(t.Context(), "operator", key.ID); !errors.Is(err, storage.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
		nodes[0].line.Cut(false)
		time.Sleep(500 * time.Millisecond)
		for i, n := range nodes {
			if !n.admits(secret) {
				t.Errorf("node %d has forgotten a key", i)
			}
		}
	})
}

func TestTheSetupCodeIsDrawnOnceWhileItsNodeLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		code, err := nodes[0].SetupCode(t.Context())
		if err != nil || code == "" {
			t.Fatal(code, err)
		}
		if second, err := nodes[1].SetupCode(t.Context()); err != nil || second != "" {
			t.Fatalf("the second node draws the code %q (%v)", second, err)
		}
		nodes[0].line.Cut(true)
		time.Sleep(5 * time.Second)
		third, err := nodes[1].SetupCode(t.Context())
		if err != nil || third == "" {
			t.Fatalf("no code after the end of the node that has logged it: %v", err)
		}
		if _, err := nodes[2].Setup(t.Context(), third.Reveal(), "ann", "correct horse battery"); err != nil {
			t.Fatal(err)
		}
		if code, err := nodes[1].SetupCode(t.Context()); err != nil || code != "" {
			t.Errorf("a code after the set-up: %q (%v)", code, err)
		}
	})
}

func ringOf(t *testing.T, seeds ...byte) *seal.Keyring {
	t.Helper()
	var texts []string
	for _, seed := range seeds {
		key := make([]byte, 32)
		for i := range key {
			key[i] = seed + byte(i)
		}
		texts = append(texts, base64.StdEncoding.EncodeToString(key))
	}
	ring, err := seal.FromTexts(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestTheMasterKeyRotatesOnlyWhenEveryNodeHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := memory.NewShared()
		var nodes []*node
		for range 3 {
			nodes = append(nodes, startNode(t, open(), ringOf(t, 1)))
		}
		time.Sleep(time.Second)
		if err := nodes[0].keyring.Mark(t.Context(), nodes[0].store); err != nil {
			t.Fatal(err)
		}
		use := func(n *node, seeds ...byte) error {
			return n.keyring.Replace(t.Context(), n.store, ringOf(t, seeds...))
		}
		if err := use(nodes[0], 2, 1); !errors.Is(err, seal.ErrOtherNodes) {
			t.Errorf("a node seals with a key that others lack: %v", err)
		}
		for _, order := range [][]byte{{1, 2}, {2, 1}} {
			for i, n := range nodes {
				if i == 1 && order[0] == 2 {
					if _, err := nodes[0].Reseal(t.Context()); codeOf(err) != fault.Conflict {
						t.Errorf("rotated while two nodes seal with the old key: %v", err)
					}
				}
				if err := use(n, order...); err != nil {
					t.Fatalf("node %d with the keys %v: %v", i, order, err)
				}
			}
		}
		if _, err := nodes[1].Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, n := range nodes {
			if err := use(n, 2); err != nil {
				t.Errorf("node %d without the old key: %v", i, err)
			}
		}
		if err := use(nodes[0], 1); !errors.Is(err, seal.ErrWrongKey) {
			t.Errorf("the old key alone: %v", err)
		}
		for i, order := range [][]byte{{2, 3}, {2, 3}, {2, 3}, {3, 2}, {3, 2}} {
			if err := use(nodes[i%3], order...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := nodes[0].Reseal(t.Context()); codeOf(err) != fault.Conflict {
			t.Errorf("rotated while a node seals with the old key: %v", err)
		}
		nodes[2].line.Cut(true)
		time.Sleep(5 * time.Second)
		if _, err := nodes[0].Reseal(t.Context()); err != nil {
			t.Errorf("a node that has ended prevents a rotation: %v", err)
		}
	})
}
