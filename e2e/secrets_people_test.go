package e2e

import (
	"bytes"
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
)

// TestNoSecretOfAUserIsStoredInClear creates, uses and misuses one of each
// secret of a user. Then it searches for all of them in:
//   - the complete log, with access log and the filter of Caddyfile.example
//   - the bytes of every file
//   - every record, because files of the store may be compressed
//   - the requests that reached the backend
//   - later answers
func TestNoSecretOfAUserIsStoredInClear(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	s := consoleSite(b)
	s.Routes = "@guarded path /guarded/*\nmodelgate_stepup @guarded\nreverse_proxy @guarded " + b.address()
	g := newGateway(t, s, b)
	g.start()

	// The log contains the first administrator's setup code, because there is
	// no other way to deliver it. Nothing else may contain it.
	root := g.newPerson("root")
	code := g.setupCode()
	root.mustFail(http.MethodPost, "/api/setup", map[string]string{"code": "not-" + code, "username": "root", "password": root.password}, http.StatusForbidden, "VERIFICATION_FAILED")
	root.mustSucceed(http.MethodPost, "/api/setup", map[string]string{"code": code, "username": "root", "password": root.password}, nil)
	root.mustFail(http.MethodPost, "/api/setup", map[string]string{"code": code, "username": "eve", "password": root.password}, http.StatusConflict, "CONFLICT")
	root.logIn()

	p := g.newPerson("ada")
	p.mustFail(http.MethodPost, "/api/user/login", map[string]string{"username": p.password, "password": "ada"}, http.StatusUnauthorized, "NOT_LOGGED_IN")
	p.register()
	p.mustFail(http.MethodPost, "/api/user/login", map[string]string{"username": "ada", "password": root.password}, http.StatusUnauthorized, "NOT_LOGGED_IN")
	p.enrolTOTP()
	p.verifyCode(p.code())
	p.createPasskey(map[string]string{"name": "phone"}) // this ends the step-up
	p.verifyByPasskey()
	other := p.newBrowser()
	other.usePasskey("login")
	third := p.newBrowser()
	third.logIn()
	third.mustFail(http.MethodPost, "/api/verify", map[string]string{"method": "2fa", "code": "0000-0000-0000"}, http.StatusForbidden, "VERIFICATION_FAILED")

	// Lasting secrets: a key, the rotated key, its callback secret, an access
	// token.
	key := p.createKey("laptop")
	var made struct {
		Key      string `json:"api_key"`
		Callback string `json:"callback_secret"`
		Token    string `json:"access_token"`
	}
	p.mustSucceed(http.MethodPost, "/api/token/"+key.ID+"/callback_secret", nil, &made)
	p.keepSecret(made.Callback)
	p.mustSucceed(http.MethodPost, "/api/token/"+key.ID+"/callback_secret", nil, &made)
	p.mustSucceed(http.MethodPost, "/api/token/"+key.ID+"/rotate", map[string]int{"grace": 60}, &made)
	p.mustSucceed(http.MethodPost, "/api/user/token", nil, &made)
	p.keepSecret(made.Key, made.Callback, made.Token)
	if made.Key == "" || made.Callback == "" || made.Token == "" || !p.canCall(issued{Secret: made.Key}) {
		t.Fatal("a credential was not created")
	}

	// Credentials in the wrong places, and one in the right place of a call to
	// a backend.
	for _, header := range [][]string{
		{"X-Api-Key", made.Key, "Cookie", "modelgate_session=" + p.session()},
		{"Authorization", "Bearer " + made.Token},
		{"X-Api-Key", made.Token},
		{"Cookie", "modelgate_session=" + p.session()},
	} {
		if a := g.call("/v1/messages", callBodies["/v1/messages"], header...); a.Status != http.StatusOK && a.Status != http.StatusUnauthorized {
			t.Errorf("a call with a credential in %s gets %d %s", header[0], a.Status, a.Body)
		}
	}
	for _, header := range [][]string{{"Authorization", "Bearer " + made.Key}, {"X-Api-Key", made.Key}, {"Authorization", "Bearer " + p.session()}} {
		anonymous := p.newBrowser()
		if a := anonymous.mustSend(http.MethodGet, "/api/user/self", nil, header...); a.Status != http.StatusUnauthorized {
			t.Errorf("the console returns %d %s for a key in %s", a.Status, a.Text, header[0])
		}
	}
	p.mustSend(http.MethodGet, "/api/user/self?token="+made.Token+"&key="+made.Key, nil)
	if a := p.mustSend(http.MethodGet, "/guarded/page", nil); a.Status != http.StatusOK {
		t.Errorf("the guarded page gets %d %s", a.Status, a.Text)
	}
	if a := third.mustSend(http.MethodGet, "/guarded/page", nil); a.Code != "VERIFICATION_REQUIRED" {
		t.Errorf("without a step-up the guarded page gets %d %s", a.Status, a.Text)
	}

	// Codes and passwords for operators.
	var reset struct{ Code string }
	g.post("/modelgate/users/ada/reset-password", nil, &reset)
	p.keepSecret(reset.Code)
	p.mustFail(http.MethodPost, "/api/user/password/reset", map[string]string{"code": "not-" + reset.Code, "password": p.password}, http.StatusForbidden, "VERIFICATION_FAILED")
	p.password = "another password of ada"
	p.keepSecret(p.password)
	p.mustSucceed(http.MethodPost, "/api/user/password/reset", map[string]string{"code": reset.Code, "password": p.password}, nil)
	p.newBrowser().logIn()
	q := g.newPerson("grace")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(q.password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := g.command("modelgate", "user", "create", "grace", "--password-file", file, "--address", g.Admin); c.code(waitLimit) != 0 {
		t.Errorf("the user was not created:\n%s", c.log.tail(10))
	}
	q.logIn()
	was := q.password
	q.password = "another password of grace"
	q.keepSecret(q.password)
	q.mustSucceed(http.MethodPost, "/api/user/password", map[string]string{"password": was, "new_password": q.password}, nil)
	q.enrolTOTP()
	keys := g.keyLines()
	if c := g.command("modelgate", "secret", "rotate", "--yes", "--address", g.Admin); c.code(waitLimit) != 0 {
		t.Errorf("the master key was not rotated:\n%s", c.log.tail(10))
	}
	keys = append(keys, g.keyLines()...)

	g.checkShown(root, p.newBrowser(), q)
	if c := g.command("modelgate", "backup", filepath.Join(g.Dir, "backup"), "--address", g.Admin); c.code(waitLimit) != 0 {
		t.Fatalf("the backup failed:\n%s", c.log.tail(10))
	}
	g.process.terminate()
	if got := g.process.code(waitLimit); got != 0 {
		t.Errorf("exit code %d", got)
	}

	// The rest is searched when the test ends; see checkSecrets.
	var hidden []string
	for _, secret := range g.secrets {
		hidden = append(hidden, encodedForms(secret)...)
	}
	if lines := g.process.log.lines(code); len(lines) != 1 || !strings.Contains(lines[0], "there is no administrator yet") {
		t.Errorf("the code for the first administrator is in the log %d times", len(lines))
	}
	if found := search(g.process.log.String(), append(hidden, keys...)); found != "" {
		t.Errorf("the log shows %s", found)
	}
	hidden = append(hidden, encodedForms(code)...)
	for _, key := range keys {
		hidden = append(hidden, encodedForms(key)...)
	}
	for name, found := range searchFiles(t, g.Store, hidden) {
		t.Errorf("the file %s shows %s", name, found)
	}
	if found := searchFiles(t, filepath.Join(g.Dir, "caddy"), hidden); len(found) > 0 {
		t.Errorf("found in Caddy's own files: %v", found)
	}
	g.searchRecords(hidden)
}

// setupCode returns the code for the first administrator from the log.
func (g *gateway) setupCode() string {
	g.t.Helper()
	const words = "there is no administrator yet"
	g.process.await(words)
	var line struct{ Code string }
	if err := json.Unmarshal([]byte(g.process.log.lines(words)[0]), &line); err != nil || line.Code == "" {
		g.t.Fatalf("no code for the first administrator is in the log: %v", err)
	}
	return line.Code
}

// keyLines returns the master keys of the key file.
func (g *gateway) keyLines() (keys []string) {
	g.t.Helper()
	text, err := os.ReadFile(g.Store + ".key")
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		g.t.Error("the key file has no key")
	}
	return keys
}

// checkShown checks that no secret is shown again to its user, to operators or
// in metrics.
func (g *gateway) checkShown(people ...*person) {
	g.t.Helper()
	for _, p := range people {
		if p.session() == "" {
			p.logIn()
		}
		for _, path := range []string{
			"/api/status", "/api/user/self", "/api/user/self/sessions", "/api/user/activity?page_size=100", "/api/user/2fa/status",
			"/api/user/passkey", "/api/token/", "/api/user/ledger", "/api/log/self", "/api/data/self",
		} {
			if a := p.mustSend(http.MethodGet, path, nil); a.Status != http.StatusOK || search(a.Text, g.secrets) != "" {
				g.t.Errorf("%s returns %d or a secret to %s", path, a.Status, p.name)
			}
		}
	}
	for _, path := range []string{"/modelgate/users", "/modelgate/users/ada", "/modelgate/keys", "/modelgate/status", "/config/", "/metrics"} {
		req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "http://"+g.Admin+path, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		text, err := g.admin(req)
		if err != nil || search(string(text), g.secrets) != "" {
			g.t.Errorf("%s of the admin endpoint shows a secret: %v", path, err)
		}
	}
}

// encodedForms returns the forms of a secret that a file may contain: its text, its
// JSON string, and its bytes in base64 or hexadecimal. If the secret itself is base32,
// base64 or hexadecimal, the decoded bytes are included in the same forms.
func encodedForms(secret string) []string {
	quoted, err := json.Marshal(secret)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	raw := []string{secret}
	if seed, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret); err == nil {
		raw = append(raw, string(seed)) // of an authenticator app
	}
	if bytes, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil && len(bytes) >= 16 {
		raw = append(raw, string(bytes)) // of a callback, or a master key
	}
	if bytes, err := hex.DecodeString(secret); err == nil && len(bytes) >= 16 {
		raw = append(raw, string(bytes))
	}
	forms := []string{strings.Trim(string(quoted), `"`)}
	for _, text := range raw {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(text))
		forms = append(forms, text, encoded, base64.RawURLEncoding.EncodeToString([]byte(text)),
			hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text))))
	}
	return forms
}

// searchRecords searches every record of the store, which must be closed.
func (g *gateway) searchRecords(secrets []string) {
	g.t.Helper()
	records := 0
	var people bool
	readRecords(g.t, g.Store, func(key, val []byte) {
		records++
		people = people || bytes.Contains(val, []byte(`"ada"`))
		for _, text := range [][]byte{key, val} {
			if found := search(string(text), secrets); found != "" {
				g.t.Errorf("the record %q shows %s", key, found)
			}
		}
	})
	if records < 50 || !people {
		g.t.Errorf("the search is incomplete: %d records, ada found: %t", records, people)
	}
}

// readRecords reads every record of a store.
func readRecords(t *testing.T, dir string, fn func(key, val []byte)) {
	t.Helper()
	caddyCtx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(caddyCtx); err != nil {
		t.Fatal(err)
	}
	engine, err := module.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = engine.View(context.Background(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(key, val []byte) bool {
			fn(key, val)
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheSearchForSecretsFindsEncodedForms(t *testing.T) {
	t.Parallel()
	seed := "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
	raw, err := base32.StdEncoding.DecodeString(seed)
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"seed": raw, "quoted": `a "password" & more`})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{seed, `a "password" & more`} {
		if search(string(record), encodedForms(secret)) == "" {
			t.Errorf("%s is not found in %s", secret, record)
		}
	}
	if found := search(string(record), encodedForms("another secret that is not there")); found != "" {
		t.Errorf("found %s", found)
	}

	// The same in a store, whose files may be compressed.
	dir := filepath.Join(t.TempDir(), "store")
	caddyCtx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(caddyCtx); err != nil {
		t.Fatal(err)
	}
	engine, err := module.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store := storage.New(engine, storage.Options{})
	if err := store.Update(t.Context(), func(txn storage.Txn) error {
		return storage.SetRecord(txn, []byte("totp/usr_ada"), json.RawMessage(record))
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	found := 0
	readRecords(t, dir, func(_, val []byte) {
		if search(string(val), encodedForms(seed)) != "" {
			found++
		}
	})
	if found != 1 {
		t.Errorf("the seed was found in %d records", found)
	}
}

// TestTheLogFormatIsThatOfTheExample checks that these tests use the log format of
// Caddyfile.example.
func TestTheLogFormatIsThatOfTheExample(t *testing.T) {
	t.Parallel()
	file, err := os.Open(filepath.Join("..", "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	filter := func(text string) string {
		_, text, _ = strings.Cut(text, "format modelgate_redact {")
		text, _, _ = strings.Cut(text, "modelgate {")
		return strings.Join(strings.Fields(text), " ")
	}
	g := newGateway(t, site{})
	if got, want := filter(string(g.config())), filter(string(text)); got != want || want == "" {
		t.Errorf("the format of the log is %q, want %q", got, want)
	}
}
