package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/console/pages"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// pagesOff is the path of a site without pages.
const pagesOff = "off"

// maxLogo is the maximum size of a logo, in bytes.
const maxLogo = 256 << 10

// provisionPages sets the defaults of the pages, and makes them unless they are off.
func (c *Console) provisionPages() error {
	c.Path = cmp.Or(c.Path, "/console")
	c.Title = cmp.Or(c.Title, "modelgate")
	if len(c.Languages) == 0 {
		c.Languages = []string{"en", "zh"}
	}
	if c.Path == pagesOff || c.validatePages() != nil { // Validate reports it
		return nil
	}
	config := pages.Config{
		API: func(w http.ResponseWriter, r *http.Request) {
			if !c.serveAPI(w, r) { // a value of the form is not the name of anything
				c.newRequest(w, r).refuse(fault.New(fault.NotFound, "there is nothing at this path"))
			}
		},
		ReadForm: c.readForm,
		ReadOnly: c.readOnly,
		Failed: func(requestID string, err error) {
			c.logger.Error("a page of the console failed", zap.String("request_id", requestID), zap.Error(err))
		},
		Path: c.Path, Title: c.Title, BaseURL: c.app.BaseURL, MediaURL: c.app.MediaURL(), VersionHeader: c.app.VersionHeader, Languages: c.Languages,
		NoAdmin: c.Admin == "off",
	}
	if c.Logo != "" {
		var err error
		if config.Logo, config.LogoType, err = readLogo(c.Logo); err != nil {
			return err
		}
	}
	var err error
	c.pages, err = pages.New(config)
	return err
}

// readOnly reports whether the store has too little space for changes. A store that does not answer
// is another fault, which the page shows by itself.
func (c *Console) readOnly(ctx context.Context) bool {
	runtime, leave, f := c.app.Enter(ctx)
	if f != nil {
		return false
	}
	defer leave()
	free, least, err := runtime.Store.Space()
	return err == nil && free < least
}

// The maximum sizes of forms, in bytes. The form of a task has its longest prompts, and each byte
// of Chinese takes three in a form.
const (
	maxForm     = 64 << 10 // without an account
	maxUserForm = 1 << 20
)

// readForm reads the form of a page, within the memory for bodies of its user or of callers without
// an account.
func (c *Console) readForm(w http.ResponseWriter, r *http.Request, user string) (url.Values, *fault.Fault) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != form.media {
		return nil, fault.New(fault.UnsupportedMediaType, "send the body as Content-Type: %s", form.media)
	}
	runtime, leave, f := c.app.Enter(r.Context())
	if f != nil {
		return nil, f
	}
	defer leave()
	var memory bodymem.Claim
	defer memory.Release()
	timeout, limit := bodyTimeout, int64(maxUserForm)
	if user != "" {
		runtime.Bodies.Users.Open(&memory, w, user, c.app.Limits.Bodies())
	} else {
		runtime.Bodies.LogIns.Open(&memory, w, auth.Network(r), caddymodule.LogInBodies)
		timeout, limit = reply.UnauthenticatedTimeout, maxForm
	}
	body, f := reply.ReadBody(w, r, limit, timeout, &memory)
	if f != nil {
		return nil, f
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fault.New(fault.InvalidParameter, "the form is damaged")
	}
	return values, nil
}

// pagesPath matches the paths that the pages may have.
var pagesPath = regexp.MustCompile(`^(/[a-z0-9][a-z0-9_-]*)+$`)

// validatePages returns an error if a setting of the pages is not allowed.
func (c *Console) validatePages() error {
	var errs []error
	switch first := regexp.MustCompile(`^/[^/]*`).FindString(c.Path); {
	case c.Path == "" || c.Path == pagesOff:
	case !pagesPath.MatchString(c.Path):
		errs = append(errs, fmt.Errorf("path: %q is not the path of the pages; allowed: segments of small letters, digits, - and _, such as /console, or off", c.Path))
	case first == "/api" || first == "/v1":
		errs = append(errs, fmt.Errorf("path: %s is below %s, which is the API's; use another path, such as /console", c.Path, first))
	}
	for i, language := range c.Languages {
		if pages.LanguageNames[language] == "" || slices.Contains(c.Languages[:i], language) {
			errs = append(errs, fmt.Errorf("languages: %q is unknown or named twice; allowed: en, zh", language))
		}
	}
	return errors.Join(errs...)
}

// readLogo reads an image, and finds its media type from its content.
func readLogo(file string) (content []byte, media string, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, "", fmt.Errorf("logo: %w", err)
	}
	if info.Size() > maxLogo {
		return nil, "", fmt.Errorf("logo: %s has %d bytes; allowed: %d", file, info.Size(), maxLogo)
	}
	if content, err = os.ReadFile(file); err != nil {
		return nil, "", fmt.Errorf("logo: %w", err)
	}
	switch media = http.DetectContentType(content); media {
	case "image/png", "image/jpeg", "image/webp":
		return content, media, nil
	case "text/xml; charset=utf-8", "text/plain; charset=utf-8":
		if regexp.MustCompile(`(?s)^\s*(<\?xml.*?\?>)?\s*(<!--.*?-->\s*)*<svg[\s>]`).Match(content) {
			return content, "image/svg+xml", nil
		}
	}
	return nil, "", fmt.Errorf("logo: %s is not an image; allowed: SVG, PNG, JPEG, WebP", file)
}

// orderPage returns the path to which a payment service sends browsers back.
func (c *Console) orderPage(tradeNo string) string {
	if c.pages == nil {
		return "/"
	}
	return c.pages.OrderPath(tradeNo)
}
