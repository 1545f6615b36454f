package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// enrolment is what a user needs to add the account to an authenticator app.
type enrolment struct {
	URI    template.URL // otpauth://…, for an app on the same device
	Secret string       // in blocks of four, for typing
	Path   string       // of the modules of the QR code, as SVG writes it
	Size   int          // of the QR code with its quiet zone, in modules
}

// maxURI bounds the URI in bytes. A longer one is none of this gateway.
const maxURI = 1024

// quiet is the width in modules of the empty zone that a QR code must have around it.
const quiet = 4

// enrolmentOf returns the enrolment of a URI; nil if it is not the URI of an authenticator app.
func enrolmentOf(uri string) *enrolment {
	parsed, err := url.Parse(uri)
	if len(uri) > maxURI || err != nil || parsed.Scheme != "otpauth" || parsed.Host != "totp" {
		return nil
	}
	code, err := qr.Encode(uri, qr.M, qr.Auto)
	if err != nil {
		return nil
	}
	var secret, path strings.Builder
	for i, letter := range parsed.Query().Get("secret") {
		if i > 0 && i%4 == 0 {
			secret.WriteByte(' ')
		}
		secret.WriteRune(letter)
	}
	width := code.Bounds().Dx()
	for y := range width {
		for x := range width {
			if dark, _, _, _ := code.At(x, y).RGBA(); dark == 0 {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return &enrolment{template.URL(uri), secret.String(), path.String(), width + 2*quiet} //nolint:gosec // the scheme is otpauth
}
