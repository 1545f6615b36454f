package console_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestNoSecretOfARunIsKeptInClear makes a secret of every kind, and searches
// every file of the store and the whole log for them.
func TestNoSecretOfARunIsKeptInClear(t *testing.T) {
	dir := t.TempDir()
	g := gatetest.Start(t, gatetest.Config{
		App: app, Site: "log\n" + site,
		Storage: fmt.Sprintf("badger %q {\n memory small\n}", filepath.Join(dir, "store")),
	})
	b := newBrowser(g)
	name := fmt.Sprintf("person-%d", accounts.Add(1))
	b.does(t, "POST", "/api/user/register", credentials(name, password))
	b.does(t, "POST", "/api/user/login", credentials(name, password))
	session := func() string { return b.jar["modelgate_session"] }
	found := map[string]string{"the password": password, "the first session": session()}

	var made struct {
		Key      string   `json:"api_key"`
		Token    string   `json:"access_token"`
		Callback string   `json:"callback_secret"`
		Seed     string   `json:"secret"`
		Codes    []string `json:"backup_codes"`
		ID       string
	}
	into(t, b.does(t, "POST", "/api/token/", fmt.Sprintf(`{"password":%q}`, password)), &made)
	into(t, b.does(t, "POST", "/api/token/"+made.ID+"/callback_secret", ""), &made)
	into(t, b.does(t, "POST", "/api/user/token", ""), &made)
	into(t, b.does(t, "POST", "/api/user/2fa/setup", fmt.Sprintf(`{"password":%q}`, password)), &made)
	b.seed = made.Seed
	into(t, b.does(t, "POST", "/api/user/2fa/enable", current(t, b)), &made)
	b.does(t, "POST", "/api/verify", fmt.Sprintf(`{"method":"2fa","code":%q}`, made.Codes[0]))
	var issued struct{ Code string }
	g.MustAdmin(t, "POST", "/modelgate/users/"+name+"/reset-password", nil, &issued)
	options := b.does(t, "POST", "/api/user/passkey/login/begin", "")
	if len(options) == 0 {
		t.Error("a log-in by passkey does not begin")
	}
	for what, secret := range map[string]string{
		"the key": made.Key, "the token": made.Token, "the callback secret": strings.TrimPrefix(made.Callback, "whsec_"), "the seed": made.Seed,
		"a used backup code": made.Codes[0], "a backup code": made.Codes[1], "a backup code without dashes": strings.ReplaceAll(made.Codes[1], "-", ""),
		"the reset code": issued.Code, "the session": session(), "the ceremony": b.jar["modelgate_session_passkey"],
	} {
		found[what] = secret
	}

	key, err := os.ReadFile(filepath.Join(dir, "store.key"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(key)), "\n")
	found["the master key"] = lines[len(lines)-1]

	for what, secret := range found {
		if len(secret) < 8 {
			t.Fatalf("%s is %q", what, secret)
		}
		if g.Logged(secret) {
			t.Errorf("%s is in the log", what)
		}
	}
	files := 0
	err = filepath.WalkDir(filepath.Join(dir, "store"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for what, secret := range found {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s is in %s", what, entry.Name())
			}
		}
		if !bytes.Contains(content, []byte(name)) && strings.HasSuffix(path, ".mem") {
			t.Errorf("%s does not even hold the user's name: the search finds nothing", entry.Name())
		}
		return nil
	})
	if err != nil || files < 2 {
		t.Errorf("%d files were searched (%v)", files, err)
	}
}
