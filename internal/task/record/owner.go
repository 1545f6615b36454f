package record

// Owner identifies the owner of tasks. The zero value owns none.
type Owner struct{ key, user string }

// Anyone owns all tasks. It is for operators.
var Anyone = Owner{"*", "*"}

// OfKey owns the tasks of an API key. It is for callers.
func OfKey(id string) Owner { return Owner{key: id} }

// OfUser owns the tasks of all keys of a user. It is for the console.
func OfUser(id string) Owner { return Owner{user: id} }

// Owns reports whether a task of this key and user belongs to the owner.
func (o Owner) Owns(key, user string) bool {
	return o == Anyone || o.key != "" && o.key == key || o.user != "" && o.user == user
}
