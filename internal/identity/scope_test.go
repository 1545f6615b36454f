package identity

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestAKeyIsAcceptedOnlyFromItsRanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ranges []string
		from   string // empty: not known
		want   bool
	}{
		{nil, "192.0.2.1", true},
		{nil, "", true},
		{[]string{"10.0.0.0/8"}, "", false},
		{[]string{"0.0.0.0/0", "::/0"}, "", false},
		{[]string{"10.0.0.0/8"}, "10.255.255.255", true},
		{[]string{"10.0.0.0/8"}, "11.0.0.0", false},
		{[]string{"10.1.2.3/8"}, "10.9.9.9", true}, // the host bits are ignored
		{[]string{"10.0.0.0/8"}, "::ffff:10.0.0.1", true},
		{[]string{"::ffff:10.0.0.1"}, "10.0.0.1", true},
		{[]string{"192.0.2.1"}, "192.0.2.1", true},
		{[]string{"192.0.2.1"}, "192.0.2.2", false},
		{[]string{"2001:db8::/32"}, "2001:db8:ffff::1", true},
		{[]string{"2001:db8::/32"}, "2001:db9::1", false},
		{[]string{"::/0"}, "192.0.2.1", false},
		{[]string{"0.0.0.0/0"}, "2001:db8::1", false},
		{[]string{"fe80::/10"}, "fe80::1%eth0", true},
		{[]string{"192.0.2.1", "198.51.100.0/24"}, "198.51.100.7", true},
	} {
		key, refusal := KeySpec{IPRanges: c.ranges}.draft(testTime)
		if refusal != nil {
			t.Fatal(c.ranges, refusal)
		}
		var from netip.Addr
		if c.from != "" {
			from = netip.MustParseAddr(c.from)
		}
		p := &Principal{operator: key.Scope}
		if got := p.MayCallFrom(from); got != c.want {
			t.Errorf("%v accepts %q: %v, want %v", c.ranges, c.from, got, c.want)
		}
	}
}

func TestInvalidScopesAreRefused(t *testing.T) {
	t.Parallel()
	many := make([]string, maxScope+1)
	for i := range many {
		many[i] = fmt.Sprintf("m%d", i)
	}
	for param, specs := range map[string][]KeySpec{
		"name":      {{Name: strings.Repeat("ü", 65)}, {Name: "a\xff"}},
		"models":    {{Models: []string{""}}, {Models: []string{"*x"}}, {Models: []string{"a", "a"}}, {Models: many}},
		"ip_ranges": {{IPRanges: []string{""}}, {IPRanges: []string{"localhost"}}, {IPRanges: []string{"10.0.0.0/33"}}, {IPRanges: []string{"10.0.0.0-10.0.0.9"}}, {IPRanges: []string{"::ffff:10.0.0.0/104"}}, {IPRanges: []string{"fe80::1%eth0"}}, {IPRanges: many}},
		"expires":   {{Expires: testTime.Unix()}, {Expires: 1}, {Expires: -1}},
	} {
		for _, spec := range specs {
			if _, refusal := spec.draft(testTime); refusal == nil || refusal.Code != fault.InvalidParameter || refusal.Param != param {
				t.Errorf("%.80v: %v, want a refusal at %s", spec, refusal, param)
			}
		}
	}
	if _, refusal := (KeySpec{Name: strings.Repeat("ü", 64), Models: many[1:], Expires: testTime.Unix() + 1}).draft(testTime); refusal != nil {
		t.Errorf("the maximum scope was refused: %v", refusal)
	}
}

func TestNamesIgnoreCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "Änne")
	for _, name := range []string{"Änne", "änne", "ÄNNE", "A\u0308nne", "a\u0308NNE"} {
		if _, err := f.CreateUser(t.Context(), "operator", name); codeOf(err) != fault.Conflict {
			t.Errorf("%q was created besides %q: %v", name, user.Name, err)
		}
		if found, err := f.User(t.Context(), name); err != nil || found.ID != user.ID {
			t.Errorf("%q is not found as %q: %v", name, user.Name, err)
		}
	}
	for _, name := range []string{"", "two words", "tab\t", "new\nline", "\x00", "a\xff", "\u202eann", strings.Repeat("a", 65), "usr_1", "Usr_ann", "ｕｓｒ_x"} {
		if _, err := f.CreateUser(t.Context(), "operator", name); codeOf(err) != fault.InvalidParameter {
			t.Errorf("%q: %v", name, err)
		}
	}
	if users, err := f.Users(t.Context()); err != nil || len(users) != 1 {
		t.Errorf("%v, %v", users, err)
	}
}

func TestKeysAreListedByUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann, bob := f.user(t, "ann"), f.user(t, "bob")
	first, _ := f.key(t, "ann", KeySpec{})
	second, _ := f.key(t, "ann", KeySpec{})
	third, _ := f.key(t, "bob", KeySpec{})
	for user, want := range map[string][]string{"": {first.ID, second.ID, third.ID}, "ANN": {first.ID, second.ID}, bob.ID: {third.ID}, ann.ID: {first.ID, second.ID}} {
		keys, err := f.Keys(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, key := range keys {
			got[key.ID] = true
		}
		if len(keys) != len(want) {
			t.Errorf("%q has %d keys, want %d", user, len(keys), len(want))
		}
		for _, id := range want {
			if !got[id] {
				t.Errorf("%q lacks the key %s", user, id)
			}
		}
	}
}
