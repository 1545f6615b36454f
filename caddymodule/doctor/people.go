package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/seal"
)

// checkSessions searches for log-ins whose encryption is unknown, because base_url is
// missing.
func checkSessions(config any) []Finding {
	if base := get[string](config, "apps", "modelgate", "base_url"); base != "" || !hasHandler(config, "modelgate_console") {
		return nil
	}
	return []Finding{{
		"warning", "apps.modelgate.base_url", "base_url is missing: browsers may send session cookies in clear, and there are no passkeys",
		"set the address of the site, such as base_url https://ai.example.com",
	}}
}

// checkPasskeys searches for settings of passkeys that browsers would refuse.
func checkPasskeys(config any) []Finding {
	configured := at(config, "apps", "modelgate", "passkey")
	if configured == nil {
		return nil
	}
	base := get[string](config, "apps", "modelgate", "base_url")
	var passkey caddymodule.Passkey
	raw, err := json.Marshal(configured)
	if err == nil {
		err = json.Unmarshal(raw, &passkey)
	}
	if err == nil {
		err = passkey.Complete(base)
	}
	if err != nil {
		return []Finding{{
			"error", "apps.modelgate.passkey", err.Error(),
			"set rp_id to the host of every origin, or to a domain above it: passkey { rp_id example.com origin https://ai.example.com }",
		}}
	}
	if base != "" && !slices.Contains(passkey.Origins, base) {
		return []Finding{{
			"warning", "apps.modelgate.passkey.origins", "base_url " + base + " is not among the origins: passkeys do not work at that address",
			"add it to the origins",
		}}
	}
	return nil
}

// checkSecrets checks where the master key and the password of the mail server are kept.
func checkSecrets(config any) []Finding {
	keys := get[[]any](config, "apps", "modelgate", "secrets")
	var findings []Finding
	if password := at(config, "apps", "modelgate", "mail", "password"); password != nil && inClear(password) {
		findings = append(findings, Finding{
			"error", "apps.modelgate.mail.password", "the password of the mail server is in clear in the configuration, which Caddy saves and shows at its admin endpoint",
			usePlaceholder,
		})
	}
	for i, key := range keys {
		if inClear(key) {
			findings = append(findings, Finding{
				"error", fmt.Sprintf("apps.modelgate.secrets[%d]", i), "a master key is in clear in the configuration, which Caddy saves and shows at its admin endpoint",
				usePlaceholder,
			})
		}
	}
	if len(keys) > 0 || !hasHandler(config, "modelgate_console") {
		return findings
	}
	path := keyFileOf(config)
	if path == "" {
		return findings
	}
	err := seal.CheckFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return findings // the first start creates it, or it is on another machine
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // only the server needs permission
		findings = append(findings, Finding{
			"error", "apps.modelgate.storage", err.Error(),
			"make it readable only by its owner: chmod 600 " + path,
		})
	}
	return append(findings, Finding{
		"note", "apps.modelgate.storage", "the master key is in " + path + " and not in the backups of the store; a restore needs both",
		"keep a copy of the key, apart from the backups; or name a key in the configuration: secret {env.MODELGATE_SECRET}",
	})
}

// keyFileOf returns the path of the key file of a Badger store. It is empty for other
// engines, and if the path has placeholders that only the server can resolve.
func keyFileOf(config any) string {
	engine, given := at(config, "apps", "modelgate", "storage", "engine").(string)
	if given && engine != "badger" {
		return ""
	}
	path, given := at(config, "apps", "modelgate", "storage", "path").(string)
	if !given {
		path = filepath.Join(caddy.AppDataDir(), "modelgate", "store")
	}
	path, err := caddy.NewReplacer().ReplaceOrErr(path, true, true)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path + ".key"
}
