package identity

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/storage"
)

// KeyMatch is a key that [Directory.FindKeys] has found.
type KeyMatch struct {
	ID, UserID string
	Name, Hint string
	Console    bool // the hidden key of the user; it has neither a name nor a hint
}

// FindKeys returns keys by their id, by the beginning of their hint, or by the beginning of their name,
// and whether there are more than limit. A hint may be whole, such as sk-vRkt…x2Ab, or end with "…". It
// reads an index, and at most a few records more than limit.
func (d *Directory) FindKeys(ctx context.Context, text string, limit int) (keys []KeyMatch, more bool, err error) {
	err = d.store.View(ctx, func(r storage.Reader) error {
		keys, more = []KeyMatch{}, false
		switch {
		case strings.HasPrefix(text, "key_"):
			return d.findKeyByID(r, text, &keys)
		case strings.HasPrefix(text, "sk-"):
			before, after, _ := strings.Cut(strings.ReplaceAll(text, "...", "…"), "…")
			in := keyHints.Under().From(before).Before(before + string(utf8.MaxRune))
			found, last, err := keyTable.Matching(r, in, int64(limit), maxExaminedHints, func(k *keyRecord) bool { return strings.HasSuffix(k.Hint, after) })
			keys, more = matchesOf(found), last != nil
			return err
		}
		folded := foldKeyName(text)
		if folded == "" {
			return nil
		}
		in := keyNames.Under().From(folded).Before(folded + string(utf8.MaxRune))
		found, last, err := keyTable.Matching(r, in, int64(limit), int64(limit), func(*keyRecord) bool { return true })
		keys, more = matchesOf(found), last != nil
		return err
	})
	return keys, more, err
}

// maxExaminedHints is the maximum number of keys that are read because their hint has the same
// beginning: about as many as 10⁹ keys have.
const maxExaminedHints = 100

func (d *Directory) findKeyByID(r storage.Reader, id string, keys *[]KeyMatch) error {
	key, err := keyTable.Get(r, id)
	if err != nil {
		return err
	}
	if key != nil {
		*keys = matchesOf([]*keyRecord{key})
		return nil
	}
	hidden, err := consoleKeyTable.Find(r, &consoleKeys, id)
	if err == nil && hidden != nil {
		*keys = append(*keys, KeyMatch{ID: id, UserID: hidden.UserID, Console: true})
	}
	return err
}

func matchesOf(found []*keyRecord) []KeyMatch {
	keys := make([]KeyMatch, len(found))
	for i, key := range found {
		keys[i] = KeyMatch{ID: key.ID, UserID: key.UserID, Name: key.Name, Hint: key.Hint}
	}
	return keys
}

// FindByEmail returns the users who have confirmed this e-mail address, in any case, and whether there
// are more than limit. It reads an index.
func (d *Directory) FindByEmail(ctx context.Context, address string, limit int) (users []User, more bool, err error) {
	err = d.store.View(ctx, func(r storage.Reader) error {
		found, last, err := userTable.Matching(r, userEmails.Under(strings.ToLower(address)), int64(limit), int64(limit), func(*userRecord) bool { return true })
		users, more = make([]User, len(found)), last != nil
		for i, user := range found {
			users[i] = user.User
		}
		return err
	})
	return users, more, err
}
