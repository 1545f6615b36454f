package table_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

type member struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Club string `json:"club,omitempty"`
}

var (
	byName  = table.Index[member]{Name: "name", Unique: true, Fields: func(m *member) table.Key { return table.Key{m.Name} }}
	byClub  = table.Index[member]{Name: "club", Fields: func(m *member) table.Key { return table.Key{m.Club} }}
	members = table.Table[member]{
		Name:    "member",
		Key:     func(m *member) table.Key { return table.Key{m.ID} },
		Indexes: []*table.Index[member]{&byName, &byClub},
	}
)

// newMembers returns a store with four members, three of them in one club.
func newMembers(t *testing.T) *storage.Store {
	t.Helper()
	s := open(t)
	update(t, s, func(tx storage.Txn) error {
		for _, m := range []member{{"m1", "dan", "a"}, {"m2", "cid", "a"}, {"m3", "bob", "b"}, {"m4", "ann", "a"}} {
			if err := members.Put(tx, nil, &m); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func verifyMembers(t *testing.T, s *storage.Store) (found []string) {
	t.Helper()
	if err := s.View(t.Context(), func(r storage.Reader) error {
		found = nil
		return members.Verify(r, func(m *member) string { return m.ID }, func(format string, args ...any) {
			found = append(found, fmt.Sprintf(format, args...))
		})
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAUniqueKeyHasOneRecord(t *testing.T) {
	t.Parallel()
	s := newMembers(t)
	err := s.Update(t.Context(), func(tx storage.Txn) error { return members.Put(tx, nil, &member{"m5", "ann", "b"}) })
	if !errors.Is(err, table.ErrTaken) {
		t.Errorf("a name that is taken: %v", err)
	}
	update(t, s, func(tx storage.Txn) error {
		if _, err := members.Change(tx, table.Key{"m4"}, func(m *member) bool { m.Name = "eve"; return true }); err != nil {
			return err
		}
		return members.Put(tx, nil, &member{"m5", "ann", "b"})
	})
	update(t, s, func(tx storage.Txn) error { return errors.Join(members.Delete(tx, "m1"), members.Delete(tx, "m9")) })
	if err := s.View(t.Context(), func(r storage.Reader) error {
		for name, want := range map[string]string{"ann": "m5", "eve": "m4", "dan": ""} {
			m, err := members.Find(r, &byName, name)
			if err != nil {
				return err
			}
			if m == nil {
				m = new(member)
			}
			if m.ID != want {
				t.Errorf("%s is %q, want %q", name, m.ID, want)
			}
		}
		has, err := members.Has(r, "m1")
		none, errNone := members.GetOrZero(r, "m1")
		if has || none == nil || *none != (member{}) {
			t.Errorf("a deleted record: %v, %v", has, none)
		}
		return errors.Join(err, errNone)
	}); err != nil {
		t.Fatal(err)
	}
	if found := verifyMembers(t, s); len(found) > 0 {
		t.Error(found)
	}
	storagetest.DamageEach(t, s, func(key string) {
		if len(verifyMembers(t, s)) == 0 {
			t.Errorf("damage at %q is not found", key)
		}
	})
}

func TestKeysAndPagesOfARange(t *testing.T) {
	t.Parallel()
	s := newMembers(t)
	if err := s.View(t.Context(), func(r storage.Reader) error {
		for want, in := range map[string]table.Range{"m1 m2 m3 m4": members.Under(), "m4 m3 m2 m1": byName.Under(), "m1 m2 m4": byClub.Under("a")} {
			var got []string
			for key, err := range members.PrimaryKeys(r, in) {
				if err != nil {
					return err
				}
				got = append(got, key)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("keys %v, want %s", got, want)
			}
		}
		for _, page := range []struct {
			skip, limit, read, total int64
			want                     []string
		}{{0, 2, 9, 3, []string{"m1", "m2"}}, {2, 2, 9, 3, []string{"m4"}}, {1, 9, 2, 2, []string{"m2"}}, {5, 2, 9, 3, nil}} {
			list, total, err := members.Page(r, byClub.Under("a"), page.skip, page.limit, page.read)
			if err != nil {
				return err
			}
			var got []string
			for _, m := range list {
				got = append(got, m.ID)
			}
			if total != page.total || !slices.Equal(got, page.want) {
				t.Errorf("%+v: got %v of %d", page, got, total)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
