package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
)

// accountPages are about the security of the account.
var accountPages = []page{
	{path: "/security", name: "security", nav: true, loads: []load{
		{"passkeys", "/api/user/passkey/", ""}, {"sessions", "/api/user/self/sessions/", "p page_size"}, status,
	}, actions: map[string]*action{
		"profile":        do("PUT", "/api/user/self", "display_name!", after("/security", "profile")),
		"email":          do("PUT", "/api/user/self", "email! password", after("/security", "email")),
		"email_confirm":  do("POST", "/api/user/self/email", "code", after("/security", "email_confirmed")),
		"notice":         do("PUT", "/api/user/self", "balance_notice:amount!", after("/security", "notice")),
		"password":       do("POST", "/api/user/password", "password new_password", after("/security", "password")),
		"passkey_remove": do("DELETE", "/api/user/self/passkeys/{id}", "", after("/security", "passkey_removed")),
		"session_end":    do("DELETE", "/api/user/self/sessions/{id}", "", after("/security", "session_ended")),
		"sessions_end":   do("DELETE", "/api/user/self/sessions/?which=others", "", after("/security", "sessions_ended")),
	}},
	{path: "/security/totp", name: "totp", section: "security", actions: map[string]*action{
		"totp_setup":   do("POST", "/api/user/2fa/setup", "password", ""),
		"totp_enable":  do("POST", "/api/user/2fa/enable", "code", ""),
		"codes_renew":  do("POST", "/api/user/2fa/backup_codes", "code", ""),
		"totp_disable": do("POST", "/api/user/2fa/disable", "code", after("/security", "totp_disabled")),
	}},
	{path: "/security/passkey", name: "passkey", section: "security", loads: []load{status}, actions: map[string]*action{
		// A script creates the passkey. This form is for the step-up before it.
		"passkey_add": do("POST", "/api/user/passkey/register/begin", "name password", ""),
	}},
	{path: "/security/token", name: "token", section: "security", actions: map[string]*action{
		"token_mint":   do("POST", "/api/user/token", "password", ""),
		"token_revoke": do("DELETE", "/api/user/token", "", after("/security", "token_revoked")),
	}},
	{path: "/activity", name: "activity", nav: true, loads: []load{{"events", "/api/user/activity/", "p page_size"}}},
}

// accountFunctions are those of the templates of these pages.
var accountFunctions = template.FuncMap{
	"row_of":    rowOf,
	"lines":     func(words []any) string { return strings.Join(strings.Fields(fmt.Sprintln(words...)), "\n") },
	"local":     func(seconds any) string { return strings.TrimSuffix(at(seconds, "2006-01-02T15:04:05"), ":00") },
	"enrolment": enrolmentOf,
	"in_query":  inQuery,
}

// inQuery returns a parameter of the query of a path, such as the code in the link of a mail.
func inQuery(path, name string) string {
	target, err := url.Parse(path)
	if err != nil {
		return ""
	}
	return target.Query().Get(name)
}

// rowOf returns the row of a list of the API in which a member has a value; nil if there is none.
func rowOf(rows any, member string, value any) map[string]any {
	for _, each := range get[[]any](rows) {
		if row, ok := each.(map[string]any); ok && row[member] == value {
			return row
		}
	}
	return nil
}
