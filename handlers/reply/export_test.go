package reply

// IsOwn is for tests with the routes of all directives.
var IsOwn = isOwn
