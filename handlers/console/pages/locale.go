package pages

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"

	"golang.org/x/text/language"
)

//go:embed messages/*/*.json templates/*.html
var files embed.FS

// LanguageNames are the languages of the pages, as each calls itself.
var LanguageNames = map[string]string{"en": "English", "zh": "中文"}

// locale is the pages in one language.
type locale struct {
	name      string
	messages  map[string]string // by key
	templates *template.Template
}

func (s *Site) loadLocales() error {
	for _, name := range s.Languages {
		l := &locale{name: name, messages: make(map[string]string)}
		areas, err := fs.Glob(files, "messages/"+name+"/*.json")
		if err != nil {
			return err
		}
		for _, area := range areas {
			raw, err := files.ReadFile(area)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(raw, &l.messages); err != nil {
				return fmt.Errorf("pages: %s: %w", area, err)
			}
		}
		l.templates, err = template.New(name).Funcs(s.functions(l)).ParseFS(files, "templates/*.html")
		if err != nil {
			return err
		}
		s.locales = append(s.locales, l)
	}
	return nil
}

// text returns the message of a key with its arguments. A key without a message is shown between
// exclamation marks; a test looks for those.
func (l *locale) text(key string, args ...any) string {
	message, ok := l.messages[key]
	switch {
	case !ok:
		return "!" + key + "!"
	case len(args) == 0:
		return message
	}
	return fmt.Sprintf(message, args...)
}

func (l *locale) has(key string) bool { return l.messages[key] != "" }

// The cookies of the pages. They hold no secret.
const (
	languageCookie = "modelgate_language"
	themeCookie    = "modelgate_theme"
)

// themes are the values of the theme's cookie. Empty: that of the browser.
var themes = []string{"", "light", "dark"}

func themeOf(r *http.Request) string {
	if cookie, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, cookie.Value) {
		return cookie.Value
	}
	return ""
}

// localeOf returns the pages in the language of the cookie, or else in the one that the browser
// prefers.
func (s *Site) localeOf(r *http.Request) *locale {
	if cookie, err := r.Cookie(languageCookie); err == nil {
		if i := slices.Index(s.Languages, cookie.Value); i >= 0 {
			return s.locales[i]
		}
	}
	accepted := r.Header.Get("Accept-Language")
	if len(accepted) > 200 { // longer ones are an attempt to make parsing slow
		return s.locales[0]
	}
	tags := make([]language.Tag, len(s.Languages))
	for i, name := range s.Languages {
		tags[i] = language.Make(name)
	}
	_, i := language.MatchStrings(language.NewMatcher(tags), accepted)
	return s.locales[i]
}

// prefer sets the cookie of the language or of the theme.
func (req *request) prefer(name string) {
	cookie := &http.Cookie{ //nolint:gosec // no secret; it must work over http on one machine
		Name: languageCookie, Value: req.form.Get("value"), Path: "/", MaxAge: 365 * 24 * 60 * 60,
		HttpOnly: true, Secure: req.r.TLS != nil, SameSite: http.SameSiteLaxMode,
	}
	allowed := req.site.Languages
	if name == "theme" {
		cookie.Name, allowed = themeCookie, themes
	}
	if slices.Contains(allowed, cookie.Value) {
		http.SetCookie(req.w, cookie)
	}
	req.returnTo(req.form.Get("return"))
}
