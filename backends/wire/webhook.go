package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Tolerance is the maximum difference between the time of a signed notification
// and now, in the past and in the future.
const Tolerance = 300 * time.Second

// errUnsigned rejects a notification. It does not say which check failed.
var errUnsigned = errors.New("the notification has no valid signature or is too old")

// CheckWebhook verifies the signature of a notification by the Standard Webhooks
// specification: HMAC-SHA256 over id, time and body. If there are several
// signatures, one valid signature is enough. Without a secret it rejects every
// notification.
func CheckWebhook(n backends.Notification, secret settings.Secret) error {
	key, signatures, err := webhookHead(n, secret)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(n.Header.Get("Webhook-Id") + "." + n.Header.Get("Webhook-Timestamp") + "."))
	mac.Write(n.Body)
	want := mac.Sum(nil)
	for _, given := range signatures {
		if subtle.ConstantTimeCompare(given, want) == 1 {
			return nil
		}
	}
	return errUnsigned
}

// CheckWebhookHead makes the checks of [CheckWebhook] that do not need the
// body. Without a secret it returns [backends.ErrNoNotices].
func CheckWebhookHead(n backends.Notification, secret settings.Secret) error {
	_, _, err := webhookHead(n, secret)
	return err
}

// webhookHead checks the headers of a notification. It returns the key and the
// signatures to compare, if the notification was signed within [Tolerance] of
// now.
func webhookHead(n backends.Notification, secret settings.Secret) (key []byte, signatures [][]byte, err error) {
	if secret == "" {
		return nil, nil, backends.ErrNoNotices
	}
	key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
	if err != nil || len(key) == 0 {
		return nil, nil, errUnsigned
	}
	seconds, err := strconv.ParseInt(n.Header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || n.Header.Get("Webhook-Id") == "" {
		return nil, nil, errUnsigned
	}
	if age := n.Now.Sub(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return nil, nil, errUnsigned
	}
	for signature := range strings.FieldsSeq(n.Header.Get("Webhook-Signature")) {
		version, text, _ := strings.Cut(signature, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && len(given) == sha256.Size {
			signatures = append(signatures, given)
		}
	}
	if len(signatures) == 0 {
		return nil, nil, errUnsigned
	}
	return key, signatures, nil
}

// CheckSecret returns an error if the secret cannot sign webhooks.
func CheckSecret(secret settings.Secret) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
	if err != nil || len(key) < 16 {
		return errors.New("it must be whsec_ followed by at least 16 bytes in Base64")
	}
	return nil
}

// ResolveSecret is [settings.Resolve] for a secret that must pass [CheckSecret]. An empty secret
// stays empty.
func ResolveSecret(word string, secret *settings.Secret) error {
	if *secret == "" {
		return nil
	}
	if err := settings.Resolve(word, secret); err != nil {
		return err
	}
	if err := CheckSecret(*secret); err != nil {
		return fmt.Errorf("%s: %w", word, err)
	}
	return nil
}
