package e2e

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// images makes the test of the pages take the screenshots of the documentation.
var images = flag.String("images", "", "folder for screenshots of the console, such as ../docs/images")

// TestThePagesInChromium runs browser/pages.mjs against the demo. Each of its steps is a subtest.
func TestThePagesInChromium(t *testing.T) {
	chromium, node := findChromium(t), findNode(t)
	t.Parallel()
	p, run := startDemo(t)
	folder := *images
	if folder != "" {
		var err error
		if folder, err = filepath.Abs(folder); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(run.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"create", "root", "--password-file", secret}, {"role", "root", "admin"}} {
		if c := launch(t, nil, append(append([]string{"modelgate", "user"}, args...), "--address", run.Admin)...); c.code(waitLimit) != 0 {
			t.Fatalf("%s:\n%s", args, c.log.tail(10))
		}
	}
	order, err := json.Marshal(map[string]string{
		"origin": run.URL, "user": run.User, "password": run.Password, "executablePath": chromium, "images": folder, "administrator": "root",
	})
	if err != nil {
		t.Fatal(err)
	}
	runScript(t, node, "pages.mjs", order, nil)
	p.checkLog()
}
