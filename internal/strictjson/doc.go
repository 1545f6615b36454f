// Package strictjson reads JSON bodies of callers. It only accepts bodies that all parsers
// read in the same way, so the checked values are those that are priced, stored and forwarded.
//
// It has two parts. [Table.Scan] and [Table.ScanNotes] are for model calls, whose body is
// forwarded byte for byte. One pass checks the grammar, finds the few members that the
// gateway uses, and skips all others. [Decode] is for the small bodies that the gateway
// handles itself: those of the console, of tasks and of the admin endpoint. All their members
// are known, and have a type.
//
// Both accept the JSON of docs/reference/http.md#json. That is RFC 8259 in valid UTF-8
// without a byte order mark: one object with only white space around it, at most [MaxDepth]
// nested brackets, and integers written as integers. Both return the same errors, a
// [fault.Fault] with the path of the parameter:
//
//	INVALID_JSON       a syntax error, with the offset of the byte
//	MISSING_PARAMETER  a required member is absent or null
//	INVALID_PARAMETER  a member has a wrong type, is out of range, is given
//	                   twice or is not known although unknown members are refused
package strictjson
