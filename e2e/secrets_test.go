package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// When a test ends, every gateway is searched for credentials. The first test
// here uses all credentials; the second one proves that a search finds them.

func TestNoCredentialIsRevealed(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)
	for path, body := range callBodies {
		for _, header := range [][]string{
			{"X-Api-Key", g.Key}, {"Authorization", "Bearer " + g.Key},
			{"X-Api-Key", g.Key, "Authorization", "Bearer " + g.Key},
		} {
			if a := g.call(path, body, header...); a.Status != http.StatusOK {
				t.Errorf("%s with %v: %d %s", path, header, a.Status, a.Body)
			}
			if at := b.next(); at.Header.Get("X-Api-Key") != g.operatorKey || at.Header.Get("Authorization") != "Bearer "+g.operatorKey {
				t.Errorf("%s was forwarded without the operator's key", path)
			}
		}
		// Refused calls are logged too.
		for _, header := range [][]string{
			{"X-Api-Key", g.Key, "Authorization", "Bearer other"},
			{"Authorization", "Basic " + g.Key},
			{"Cookie", "key=" + g.Key},
		} {
			if a := g.call(path, body, header...); a.Status < 400 {
				t.Errorf("%s with %v: %d, want a refusal", path, header, a.Status)
			}
		}
		if a := g.call(path+"?key="+g.Key, body); a.Status != http.StatusUnauthorized {
			t.Errorf("%s with the key in the query: %d", path, a.Status)
		}
	}
	g.process.await(`"msg":"call"`) // there is a log to search
}

func TestTheSearchForCredentialsFindsThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(below, "000001.vlog")
	if err := os.WriteFile(file, []byte("\x00\x01sk-one\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := searchFiles(t, dir, []string{"sk-two", "sk-one"}); found[file] != "sk-one" || len(found) != 1 {
		t.Errorf("found %v", found)
	}
	if found := searchFiles(t, dir, []string{"sk-two"}); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

// checkSecrets checks that credentials are not in the log or in files. It also checks that
// backends have not received those of clients, and that clients have not received the
// operator's.
func (g *gateway) checkSecrets() {
	g.t.Helper()
	clients := g.secrets[1:]
	if found := search(g.process.log.String(), g.secrets); found != "" {
		g.t.Errorf("the log shows the credential %s", found)
	}
	for file, found := range searchFiles(g.t, g.Dir, g.secrets) {
		g.t.Errorf("the file %s shows the credential %s", file, found)
	}
	for _, b := range g.backends {
		for _, a := range b.requests() {
			if found := search(a.URI+fmt.Sprint(a.Header)+string(a.Body), clients); found != "" {
				g.t.Errorf("the credential %s of a client has reached the backend", found)
			}
		}
	}
	if found := search(g.responseRecorder.seen(), g.secrets); found != "" {
		g.t.Errorf("the credential %s has reached a client", found)
	}
}

// search returns the first of the secrets that text contains, or "".
func search(text string, secrets []string) string {
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			return secret
		}
	}
	return ""
}

// searchFiles returns the files below dir that contain one of the secrets.
func searchFiles(t *testing.T, dir string, secrets []string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if secret := search(string(text), secrets); secret != "" {
			found[path] = secret
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	return found
}
