package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestMain(m *testing.M) { gatetest.Main(m) }

func TestExitCodesOfCommands(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	fileThere := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(fileThere, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"done":                     {[]string{"user", "list"}, 0, ""},
		"status":                   {[]string{"status"}, 0, ""},
		"no verb":                  {[]string{"user"}, 2, "a command is missing"},
		"no noun":                  {[]string{}, 2, "a command is missing"},
		"unknown noun":             {[]string{"person"}, 2, `unknown command "person"`},
		"unknown verb":             {[]string{"user", "kill"}, 2, `unknown command "kill"`},
		"unknown flag":             {[]string{"user", "list", "--fast"}, 2, "unknown flag"},
		"an argument is missing":   {[]string{"user", "create"}, 2, "wrong number of arguments: 0; allowed: 1\nUsage:"},
		"one argument of two":      {[]string{"wallet", "credit", "ann"}, 2, "wrong number of arguments: 1; allowed: 2"},
		"an argument too many":     {[]string{"user", "create", "a", "b"}, 2, "wrong number of arguments: 2; allowed: 1"},
		"bad expiry":               {[]string{"key", "create", "ann", "--expires", "soon"}, 2, "--expires"},
		"bad grace":                {[]string{"key", "rotate", "key_0", "--grace", "soon"}, 2, "--grace"},
		"user not found":           {[]string{"user", "enable", "nobody"}, 3, `there is no user "nobody"`},
		"key not found":            {[]string{"key", "rotate", "key_0"}, 3, `there is no key "key_0"`},
		"owner not found":          {[]string{"key", "create", "nobody"}, 3, `there is no user "nobody"`},
		"name taken":               {[]string{"user", "create", "ANN"}, 4, "already"},
		"bad name":                 {[]string{"user", "create", "two words"}, 4, "no spaces"},
		"not confirmed":            {[]string{"key", "revoke", "key_1"}, 4, "not confirmed"},
		"no models":                {[]string{"key", "create", "ann", "--models", ""}, 2, "--models is empty"},
		"no addresses":             {[]string{"key", "create", "ann", "--ip-ranges="}, 2, "--ip-ranges is empty"},
		"expiry in the past":       {[]string{"key", "create", "ann", "--expires", "2020-01-01T00:00:00Z"}, 2, "is not in the future"},
		"a grace too long":         {[]string{"key", "rotate", "key_1", "--grace", "31d"}, 2, "at most 30d"},
		"a doctor without a file":  {[]string{"doctor", "--config", fileThere + "x"}, 3, "no such file"},
		"a name with a slash":      {[]string{"user", "enable", "a/b"}, 3, `there is no user "a/b"`},
		"no limit":                 {[]string{"user", "limit", "ann"}, 2, "a limit is missing"},
		"some limit and none":      {[]string{"user", "limit", "ann", "--rps", "1", "--none"}, 2, "excludes other limits"},
		"a budget in words":        {[]string{"user", "limit", "ann", "--budget", "ten"}, 2, "not a decimal number such as 9.90"},
		"an empty budget":          {[]string{"key", "create", "ann", "--budget", ""}, 2, "not a decimal number such as 9.90"},
		"an unknown reset":         {[]string{"key", "limit", "key_0", "--reset", "year"}, 2, "allowed: never, day, week, month"},
		"an empty reset":           {[]string{"key", "limit", "key_0", "--reset="}, 2, "allowed: never, day, week, month"},
		"half a call a second":     {[]string{"key", "limit", "key_0", "--rps", "0.5"}, 2, "--rps"},
		"a reset without a budget": {[]string{"user", "limit", "ann", "--reset", "day"}, 4, "there is no budget"},
		"a negative limit":         {[]string{"user", "limit", "ann", "--streams=-1"}, 4, "between 0"},
		"a negative budget":        {[]string{"key", "create", "ann", "--budget=-1"}, 4, "not negative"},
		"a limit of no user":       {[]string{"user", "limit", "nobody", "--none"}, 3, `there is no user "nobody"`},
		"a limit of no key":        {[]string{"key", "limit", "key_0", "--tpm", "5"}, 3, `there is no key "key_0"`},
		"show no user":             {[]string{"user", "show", "nobody"}, 3, `there is no user "nobody"`},
		"a token of no user":       {[]string{"user", "token", "nobody"}, 3, `there is no user "nobody"`},
		"a token not confirmed":    {[]string{"user", "token", "ann", "--revoke"}, 4, "not confirmed"},
		"a credit without reason":  {[]string{"wallet", "credit", "ann", "5.00"}, 2, "--reason is required"},
		"a credit in words":        {[]string{"wallet", "credit", "ann", "five", "--reason", "x"}, 4, "not a decimal number"},
		"too many decimal places":  {[]string{"wallet", "credit", "ann", "0.0000000001", "--reason", "x"}, 4, "more than nine decimal places"},
		"a negative credit":        {[]string{"wallet", "credit", "ann", "-1.5", "--reason", "x"}, 2, "-1.5 is not a flag: amounts and numbers must not be negative"},
		"two forms of a report":    {[]string{"usage", "report", "--csv", "--json"}, 2, "exclude each other"},
		"an unknown account":       {[]string{"wallet", "ledger", "ann", "--account", "safe"}, 4, "wallet, receivable or quota/"},
		"a name like an id":        {[]string{"user", "create", "USR_ann"}, 4, "must not begin with usr_"},
		"a credit of zero":         {[]string{"wallet", "credit", "ann", "0", "--reason", "x"}, 4, "more than zero"},
		"a credit to no user":      {[]string{"wallet", "credit", "nobody", "5", "--reason", "x"}, 3, `there is no user "nobody"`},
		"a debit above the wallet": {[]string{"wallet", "debit", "ann", "5", "--reason", "x"}, 4, "5.00"},
		"a wallet of no user":      {[]string{"wallet", "show", "nobody"}, 3, `there is no user "nobody"`},
		"an unknown plan":          {[]string{"subscription", "grant", "ann", "7", "--reason", "x"}, 3, "there is no plan 7"},
		"a plan by its title":      {[]string{"subscription", "grant", "ann", "Starter", "--reason", "x"}, 2, "is not a number; allowed: the id of a plan"},
		"no subscription":          {[]string{"subscription", "cancel", "7", "--reason", "x", "--yes"}, 3, "subscription"},
		"a cancel not confirmed":   {[]string{"subscription", "cancel", "7", "--reason", "x"}, 4, "not confirmed"},
		"an unknown grouping":      {[]string{"usage", "report", "--by", "colour"}, 4, "allowed: day, user, key, model"},
		"usage to before from":     {[]string{"usage", "report", "--from", "2026-11-23", "--to", "2026-11-22"}, 4, "must not be before"},
		"usage of an invalid day":  {[]string{"usage", "report", "--from", "today"}, 4, "a day such as"},
		"verify of no file":        {[]string{"verify", "--backup", fileThere + "x"}, 3, "no such file"},
		"verify":                   {[]string{"verify"}, 0, ""},
		"backup over a file":       {[]string{"backup", fileThere}, 4, "already exists"},
		"restore of no file":       {[]string{"restore", fileThere + "x", t.TempDir()}, 3, "no such file"},
		"restore of no backup":     {[]string{"restore", fileThere, filepath.Join(t.TempDir(), "new")}, 1, "not a backup"},
		"restore into a directory": {[]string{"restore", fileThere, filepath.Dir(fileThere)}, 4, "is not empty"},
		"an unknown engine":        {[]string{"restore", fileThere, t.TempDir(), "--engine", "floppy"}, 2, "floppy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := g.Command(t, "", c.args...)
			if code != c.code || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d (%q)\n%s%s", code, c.code, c.stderr, stdout, stderr)
			}
		})
	}
}

func TestUsageIsPrintedOnlyForSyntaxErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		shown bool
	}{
		"an argument is missing": {[]string{"user", "create"}, true},
		"an unknown flag":        {[]string{"user", "list", "--fast"}, true},
		"no verb":                {[]string{"user"}, true},
		"a bad value":            {[]string{"key", "create", "ann", "--expires", "soon"}, false},
		"no reason":              {[]string{"wallet", "credit", "ann", "5.00"}, false},
	} {
		code, stdout, stderr := gatetest.Caddy(t, "", append([]string{"modelgate"}, c.args...)...)
		if code != 2 || strings.Contains(stderr, "Usage:") != c.shown || stdout != "" {
			t.Errorf("%s: exit code %d: %s%s", name, code, stdout, stderr)
		}
	}
}

func TestACommandWithoutAServerHasExitCode5(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:1", "unix/" + filepath.Join(t.TempDir(), "none.sock"), "localhost:1"} {
		code, _, stderr := gatetest.Caddy(t, "", "modelgate", "status", "--address", address)
		if code != 5 || !strings.Contains(stderr, "cannot be reached") {
			t.Errorf("%s: exit code %d: %s", address, code, stderr)
		}
	}
	if code, _, _ := gatetest.Caddy(t, "", "modelgate", "status", "--address", "localhost:1-9"); code != 2 {
		t.Errorf("a range of ports: exit code %d", code)
	}
}

func TestCommandsCreateRotateAndRevokeKeys(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	type key struct {
		ID     string `json:"id"`
		Secret string `json:"api_key"`
	}
	asKey := func(args ...string) (k key) {
		t.Helper()
		code, stdout, stderr := g.Command(t, "", append(args, "--json")...)
		if code != 0 || json.Unmarshal([]byte(stdout), &k) != nil || strings.Count(stdout, "\n") != 1 {
			t.Fatalf("%v: exit code %d: %s%s", args, code, stdout, stderr)
		}
		return k
	}
	accepted := func(secret string, want int) {
		t.Helper()
		if got := g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+secret, ""); got.Status != want {
			t.Errorf("the key gets %d, want %d", got.Status, want)
		}
	}
	if code, stdout, _ := g.Command(t, "", "user", "create", "bob"); code != 0 || !strings.Contains(stdout, "bob") || !strings.Contains(stdout, "active") {
		t.Fatalf("exit code %d: %s", code, stdout)
	}
	first := asKey("key", "create", "bob", "--name", "laptop", "--models", "a-*,b", "--ip-ranges", "127.0.0.0/8", "--expires", "30d")
	accepted(first.Secret, 200)
	second := asKey("key", "rotate", first.ID, "--grace", "1h")
	if second.ID != first.ID {
		t.Errorf("the rotated key is %s, want %s", second.ID, first.ID)
	}
	accepted(first.Secret, 200)
	accepted(second.Secret, 200)

	code, stdout, _ := g.Command(t, "", "key", "list", "--user", "bob")
	for _, word := range []string{first.ID, "laptop", "a-*,b", "127.0.0.0/8", "active"} {
		if code != 0 || !strings.Contains(stdout, word) {
			t.Errorf("the list lacks %q:\n%s", word, stdout)
		}
	}
	if strings.Contains(stdout, second.Secret) {
		t.Error("the list shows the key")
	}

	if code, _, stderr := g.Command(t, "n\n", "key", "revoke", first.ID); code != 4 || !strings.Contains(stderr, "[y/N]") {
		t.Errorf("a refused confirmation: exit code %d: %s", code, stderr)
	}
	accepted(second.Secret, 200)
	if code, _, stderr := g.Command(t, "y\n", "key", "revoke", first.ID); code != 0 {
		t.Errorf("a confirmed revocation: exit code %d: %s", code, stderr)
	}
	accepted(first.Secret, 401)
	accepted(second.Secret, 401)
	if code, _, _ := g.Command(t, "", "key", "rotate", first.ID); code != 4 {
		t.Errorf("rotating a revoked key: exit code %d", code)
	}
	if code, _, _ := g.Command(t, "", "user", "disable", "bob", "--yes"); code != 0 {
		t.Errorf("disable --yes: exit code %d", code)
	}
}

func TestCommandsSetChangeAndRemoveLimits(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	for _, of := range []struct{ noun, id, route string }{
		{"user", key.UserID, "/modelgate/users/" + key.UserID},
		{"key", key.ID, "/modelgate/keys/" + key.ID},
	} {
		for _, step := range []struct {
			flags       []string
			json, words string
		}{
			{[]string{"--budget", "10", "--reset", "month", "--rps", "5", "--streams", "4", "--tpm", "100000"}, `"limits":{"budget":"10.00","reset":"month","requests_per_second":5,"streams":4,"tokens_per_minute":100000}`, "budget 10.00 a month, requests/s 5, streams 4, tokens/min 100000"},
			{[]string{"--streams", "9"}, `"limits":{"budget":"10.00","reset":"month","requests_per_second":5,"streams":9,"tokens_per_minute":100000}`, "budget 10.00 a month, requests/s 5, streams 9, tokens/min 100000"},
			{[]string{"--budget", "0.5", "--tpm", "0"}, `"limits":{"budget":"0.50","reset":"month","requests_per_second":5,"streams":9}`, "budget 0.50 a month, requests/s 5, streams 9"},
			{[]string{"--budget", "0", "--rps", "0"}, `"limits":{"streams":9}`, "streams 9"},
			{[]string{"--none"}, "", "none"},
		} {
			code, stdout, stderr := g.Command(t, "", append([]string{of.noun, "limit", of.id, "--json"}, step.flags...)...)
			if code != 0 || !strings.Contains(stdout, step.json) || step.json == "" && strings.Contains(stdout, "limits") {
				t.Errorf("%s limit %v: exit code %d: %s%s", of.noun, step.flags, code, stdout, stderr)
			}
			if _, shown, _ := g.Command(t, "", of.noun, "list"); !strings.Contains(shown, "  "+step.words+"  ") {
				t.Errorf("after %v the list lacks %q:\n%s", step.flags, step.words, shown)
			}
		}
	}
	code, stdout, stderr := g.Command(t, "", "key", "create", key.UserID, "--budget", "1", "--streams", "2")
	if code != 0 || !strings.Contains(stdout, "  budget 1.00, streams 2  ") {
		t.Errorf("a key with limits: exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestCommandsCreateAndRevokeAccessTokens(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	var asJSON struct {
		Token string `json:"access_token"`
	}
	code, stdout, stderr := g.Command(t, "", "user", "token", "ann", "--json")
	if code != 0 || json.Unmarshal([]byte(stdout), &asJSON) != nil || !strings.HasPrefix(asJSON.Token, "mgat_") || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = g.Command(t, "", "user", "token", "ann")
	lines := strings.Fields(stdout)
	if code != 0 || !strings.Contains(stdout, "shown only once") || !strings.HasPrefix(lines[len(lines)-1], "mgat_") {
		t.Fatalf("exit code %d: %s", code, stdout)
	}
	token := lines[len(lines)-1]
	code, stdout, _ = g.Command(t, "", "user", "show", "ann")
	if hint := token[:9] + "…" + token[len(token)-4:]; code != 0 || !strings.Contains(stdout, hint) || strings.Contains(stdout, token) {
		t.Errorf("user show: exit code %d, without %q: %s", code, hint, stdout)
	}
	if g.Logged(token) || g.Logged(asJSON.Token) {
		t.Error("an access token is in the log")
	}

	if code, stdout, _ = g.Command(t, "y\n", "user", "token", "ann", "--revoke"); code != 0 || !strings.Contains(stdout, "ann has no access token now") {
		t.Errorf("a confirmed revocation: exit code %d: %s", code, stdout)
	}
	if _, stdout, _ = g.Command(t, "", "user", "show", "ann", "--json"); strings.Contains(stdout, "mgat_") {
		t.Errorf("a revoked token is shown: %s", stdout)
	}
	if code, stdout, _ = g.Command(t, "", "user", "token", "ann", "--revoke", "--yes", "--json"); code != 0 || stdout != "{}\n" {
		t.Errorf("revoking a missing token: exit code %d: %q", code, stdout)
	}
}

func TestStatusOfAFailedRuntimeHasExitCode1(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	g.FailStore(t)
	code, stdout, stderr := g.Command(t, "", "status")
	if code != 1 || !strings.Contains(stdout, "NOT READY") || !strings.Contains(stderr, "not ready") || !regexp.MustCompile(`version +devel`).MatchString(stdout) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestABackupOfARunningGatewayCanBeRestored(t *testing.T) {
	dir := t.TempDir()
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied, Storage: gatetest.SmallStore(filepath.Join(dir, "store"))})
	key := g.NewKey(t, nil)
	file, restored := filepath.Join(dir, "backup"), filepath.Join(dir, "restored")
	// lastBackup returns the time of the last backup. It fails unless all sources report the same time.
	lastBackup := func() (at int64) {
		t.Helper()
		_, metrics := g.Admin(t, http.MethodGet, "/metrics", nil)
		var status struct {
			At int64 `json:"last_backup"`
		}
		g.MustAdmin(t, http.MethodGet, "/modelgate/status", nil, &status)
		if found := regexp.MustCompile(`(?m)^modelgate_last_backup_timestamp_seconds\{store="badger:[^"]*store"\} (\S+)$`).FindSubmatch(metrics); found == nil {
			t.Error("the metric of the last backup is missing")
		} else if seconds, err := strconv.ParseFloat(string(found[1]), 64); err != nil || int64(seconds) != status.At {
			t.Errorf("the metric has %s, the status %d", found[1], status.At)
		}
		_, stdout, _ := g.Command(t, "", "doctor")
		if warned := strings.Contains(stdout, "the store was never backed up"); warned != (status.At == 0) {
			t.Errorf("last backup at %d; the doctor prints\n%s", status.At, stdout)
		}
		return status.At
	}
	if code, _, _ := g.Command(t, "", "backup", dir); code == 0 || lastBackup() != 0 {
		t.Errorf("a backup with exit code %d is recorded", code)
	}
	began := time.Now().Unix()
	if code, stdout, stderr := g.Command(t, "", "backup", file); code != 0 || stderr != "" {
		t.Fatalf("the backup: exit code %d: %s%s", code, stdout, stderr)
	}
	if at := lastBackup(); at < began || at > time.Now().Unix() {
		t.Errorf("the recorded time of the last backup is %d", at)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v (%v)", info.Mode(), err)
	}
	if code, stdout, stderr := gatetest.Caddy(t, "", "modelgate", "restore", file, restored); code != 0 {
		t.Fatalf("the restore: exit code %d: %s%s", code, stdout, stderr)
	}
	if err := g.Reload(gatetest.Config{Site: gatetest.Proxied, Storage: gatetest.SmallStore(restored)}); err != nil {
		t.Fatal(err)
	}
	if got := g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+key.Secret, ""); got.Status != http.StatusOK {
		t.Errorf("a key of the backup gets %d %s", got.Status, got.Body)
	}
	if err := g.Reload(gatetest.Config{Site: gatetest.Proxied, Storage: gatetest.SmallStore(filepath.Join(dir, "store"))}); err != nil {
		t.Fatal(err)
	}
	if lastBackup() < began {
		t.Error("the time of the backup is lost when the store is opened again")
	}
}

// TestJSONOutputIsNotEscapedForHTML checks the text, because operators copy links from it.
func TestJSONOutputIsNotEscapedForHTML(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	code, stdout, stderr := g.Command(t, "", "key", "create", key.UserID, "--name", "R&D <new>", "--json")
	if code != 0 || !strings.Contains(stdout, `"name":"R&D <new>"`) || !strings.HasSuffix(stdout, "}\n") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	listed := g.AdminAnswer(t, http.MethodGet, "/modelgate/keys", nil)
	if !strings.Contains(listed.Body, `"name":"R&D <new>"`) || listed.Header.Get("Content-Type") != "application/json" ||
		listed.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("got %v %s", listed.Header, listed.Body)
	}
}
