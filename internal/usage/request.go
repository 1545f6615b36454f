package usage

// RequestText is the number of UTF-8 bytes of text in the body of a request, of
// either dialect: prompts, what was said, and tools. It is what the input of a
// call is estimated by when its backend reports nothing; media are not counted.
func RequestText(body []byte) int64 {
	var d document
	d.reset()
	d.place = asked
	d.write(body)
	return d.delivered.bytes()
}
