package vod

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/settings"
)

// The fixed parts of a TC3 signature.
const (
	algorithm   = "TC3-HMAC-SHA256"
	service     = "vod"
	termination = "tc3_request"
	contentType = "application/json; charset=utf-8"
	signed      = "content-type;host"
)

// sign signs a call with TC3-HMAC-SHA256 over its content type, host and body.
// The vendor's own libraries sign the same headers.
func sign(r *http.Request, body []byte, id string, key settings.Secret, now time.Time) {
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("X-Tc-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Authorization", authorization(service, r.URL.Host, body, id, key, now))
}

func authorization(service, host string, body []byte, id string, key settings.Secret, now time.Time) string {
	date := now.UTC().Format(time.DateOnly)
	request := strings.Join([]string{
		http.MethodPost, "/", "",
		"content-type:" + contentType,
		"host:" + host,
		"", signed, digest(body),
	}, "\n")
	scope := date + "/" + service + "/" + termination
	text := strings.Join([]string{algorithm, strconv.FormatInt(now.Unix(), 10), scope, digest([]byte(request))}, "\n")
	secret := []byte("TC3" + key.Reveal())
	for _, part := range []string{date, service, termination} {
		secret = mac(secret, part)
	}
	return algorithm + " Credential=" + id + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + hex.EncodeToString(mac(secret, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
