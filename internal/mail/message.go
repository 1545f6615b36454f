package mail

import (
	"cmp"
	"embed"
	"strings"
	"text/template"
)

// The kinds of mails.
const (
	Confirm = "confirm" // the code that confirms an address
	Reset   = "reset"   // the code for a new password
	Balance = "balance" // the balance is low
	LogIn   = "login"   // a log-in from a new device
	Earlier = "left"    // to an address that is no longer that of the account
)

// Languages are the languages of mails; the first is the default.
var Languages = []string{"en", "zh"}

// Message is a mail. It is plain text.
type Message struct {
	Kind   string // for the log
	UserID string // for the log
	To     string

	Subject, Text string
}

// Facts are the values in the texts of mails. Each kind uses some of them.
type Facts struct {
	Site    string // the host of the gateway
	User    string // the name of the user
	Code    string
	Link    string // a page of the gateway; empty: it has none
	Minutes int    // how long the code is valid

	Balance, Limit string // amounts with their currency

	Time, Address, Device string // of a log-in
}

//go:embed texts/*.txt
var texts embed.FS

// templates has the texts by language. The first line of each is the subject.
var templates = func() map[string]*template.Template {
	all := make(map[string]*template.Template)
	for _, language := range Languages {
		all[language] = template.Must(template.ParseFS(texts, "texts/"+language+".txt"))
	}
	return all
}()

// Write writes a mail of a kind in a language; an unknown language is the default.
func Write(kind, language, to, userID string, facts Facts) (Message, error) {
	text := cmp.Or(templates[language], templates[Languages[0]])
	var b strings.Builder
	if err := text.ExecuteTemplate(&b, kind, facts); err != nil {
		return Message{}, err
	}
	subject, body, _ := strings.Cut(strings.TrimSpace(b.String()), "\n")
	return Message{Kind: kind, UserID: userID, To: to, Subject: subject, Text: strings.TrimSpace(body) + "\n"}, nil
}

// agentPart is a part of a User-Agent and the name of the browser or system that sends it.
type agentPart struct{ part, name string }

// The browsers and systems that a mail names. The first match counts.
var (
	browsers = []agentPart{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser", "Samsung Internet"}, {"MicroMessenger", "WeChat"}, {"Firefox", "Firefox"},
		{"FxiOS", "Firefox"}, {"CriOS", "Chrome"}, {"Chrome", "Chrome"}, {"Safari", "Safari"}, {"curl/", "curl"}, {"python", "Python"},
	}
	systems = []agentPart{
		{"Android", "Android"}, {"HarmonyOS", "HarmonyOS"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"},
		{"CrOS", "ChromeOS"}, {"Macintosh", "macOS"}, {"Linux", "Linux"},
	}
)

// Device returns the names of the browser and the system of a User-Agent, or "". The header itself is
// never in a mail: its sender may be an attacker, who could put a link into it.
func Device(agent string) string {
	var names []string
	for _, table := range [][]agentPart{browsers, systems} {
		for _, p := range table {
			if strings.Contains(agent, p.part) {
				names = append(names, p.name)
				break
			}
		}
	}
	return strings.Join(names, ", ")
}
