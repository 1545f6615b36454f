package pages

// keyFields are the fields of the form of a new key.
const keyFields = "name models:list ip_ranges:list expires:date limits.budget:amount limits.reset?limits.budget " +
	"limits.requests_per_second:int limits.streams:int limits.tokens_per_minute:int callback_url password"

// wholeKey are the fields of the form that changes a key. An emptied field removes what there is.
const wholeKey = "name! models:list! ip_ranges:list! expires:date! limits.budget:amount! limits.reset?limits.budget " +
	"limits.requests_per_second:int! limits.streams:int! limits.tokens_per_minute:int! callback_url! password"

var testCallback = do("POST", "/api/callback/test", "key_id", "")

// keyPages are about API keys and their callbacks.
var keyPages = []page{
	{path: "/keys", name: "keys", nav: true, loads: []load{
		{"keys", "/api/token/", "p page_size"}, {"usage", "/api/data/self/?group=key", ""},
	}},
	{path: "/keys/new", name: "key_new", section: "keys", actions: map[string]*action{
		"key_create": do("POST", "/api/token/", keyFields, ""),
	}},
	{path: "/keys/{id}", name: "api_key", section: "keys", loads: []load{
		{"key", "/api/token/{id}", ""}, {"usage", "/api/data/self/?group=key", ""},
	}, actions: map[string]*action{
		"key_change":      do("PUT", "/api/token/{id}", wholeKey, after("/keys/{id}", "key_changed")),
		"key_rotate":      do("POST", "/api/token/{id}/rotate", "grace:int password", ""),
		"key_revoke":      do("DELETE", "/api/token/{id}", "", after("/keys/{id}", "key_revoked")),
		"callback_secret": do("POST", "/api/token/{id}/callback_secret", "password", ""),
		"callback_test":   testCallback,
	}},
	{path: "/callbacks", name: "callbacks", nav: true, loads: []load{
		{"keys", "/api/token/?page_size=100", ""}, {"deliveries", "/api/callback/deliveries/", "p page_size"},
	}, actions: map[string]*action{
		"callback_test":      testCallback,
		"callback_redeliver": do("POST", "/api/callback/deliveries/{id}/redeliver", "", after("/callbacks", "redelivered")),
	}},
}
