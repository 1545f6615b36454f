package generation

import (
	"cmp"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// quantity is a quantity that affects the price, with the member names that
// services are known to accept for it. Services merge the caller's additional
// members over their own request, so such a member overrides the priced value.
// It is allowed only if it has the priced value, or if no other member sets it.
type quantity struct {
	means string                                 // description for error messages
	names []string                               // as returned by [normalize]
	adopt func(r *Request, a *alias) (same bool) // sets the value if the request does not

	// The value is compared with the request and the family, but does not
	// determine the rate, because words for sizes have no common meaning.
	opaque bool

	// Members of these names are searched at any depth if the price counts the
	// quantity.
	deep bool

	// Members of these names count only if their value is an integer.
	counts bool
}

// quantities are in the order of evaluation: frames depend on earlier ones.
var quantities = []quantity{
	{means: "`model`", adopt: adoptModel, names: []string{"model", "modelname", "modelid", "modelversion", "reqkey"}},
	{means: "`duration`", adopt: adoptDuration, deep: true, names: []string{
		"duration", "dur", "seconds", "durationseconds", "durationsec", "durationinseconds", "videoduration", "videodurationseconds", "numseconds",
		"numberofseconds", "secs", "sec", "lengthseconds", "lengthsec", "lengthinseconds", "length", "videolength", "videolengthseconds",
		"videoseconds", "cliplength", "cliplengthseconds", "clipduration", "clipseconds", "totalseconds", "totalduration", "totallength",
		"outputduration", "outputlength", "targetduration", "targetlength", "generationduration", "extendduration", "extendseconds",
		"extensionduration", "extensionseconds", "extendby", "extendbyseconds", "extendlength", "extensionlength", "additionalseconds", "addseconds",
		"runtime", "runtimeseconds", "runningtime", "playtime", "screentime", "timelength", "videotime", "videosec", "videosecs", "videolen", "cliplen",
		"clipsec", "outputseconds", "generateseconds", "generatedseconds", "generateduration", "requestedduration", "desiredduration", "finalduration",
		"durations", "totaltime", "nseconds", "secondscount", "sceneduration", "shotduration", "sceneseconds", "shotseconds",
	}},
	{means: "`duration` in minutes", adopt: adoptUnits(60 * catalog.Second), deep: true, names: []string{
		"minutes", "mins", "numminutes", "durationminutes", "durationmins", "durationinminutes", "durationmin", "videominutes", "videodurationminutes",
		"lengthminutes", "lengthinminutes", "videolengthminutes", "totalminutes", "extendminutes", "runtimeminutes",
	}},
	{means: "`duration` in hours", adopt: adoptUnits(3600 * catalog.Second), deep: true, names: []string{"hours", "durationhours", "durationinhours", "lengthhours"}},
	{means: "`duration` in milliseconds", adopt: adoptUnits(catalog.Second / 1000), deep: true, names: []string{
		"msec", "msecs", "millis", "runtimems", "clipdurationms", "extendms", "outputdurationms", "totalms", "totaldurationms",
		"durationms", "durationmillis", "durationmilliseconds", "durationinmilliseconds", "milliseconds", "videodurationms", "lengthms", "videolengthms",
	}},
	{means: "`n`", adopt: adoptInto(func(o *Output) **int { return &o.Count }), deep: true, names: []string{
		"n", "count", "samplecount", "numsamples", "numvideos", "numberofvideos", "videocount", "numoutputs", "numresults", "numberresults", "numberofresults", "batchsize",
		"numclips", "nvideos", "nsamples", "noutputs", "nresults", "numgenerations", "videosperprompt", "numvideosperprompt", "outputcount", "resultcount",
		"numimages", "numberofimages", "imagecount", "nimages", "maximages", "imagesperprompt", "numimagesperprompt",
		"candidatecount", "numcandidates", "repeatcount", "variantcount", "numvariants", "numvariations", "quantity", "variationcount",
		"generatecount", "gencount", "generationcount", "generatenum", "gennum", "generatenumber", "takecount", "numtakes", "numberoftakes",
		"loopcount", "numloops", "numberofloops", "copycount", "numcopies", "numberofcopies", "numrepeats", "numrepetitions", "numberofrepetitions",
		"batchcount", "numbatches", "batchnum", "niter", "numreturn", "numreturnimages", "numreturnsequences", "imagenum", "imagesnum", "imgnum", "imgcount",
		"numimgs", "picturecount", "numpictures", "photocount", "numphotos", "videonum", "videosnum", "outputnum", "outputsnum", "resultnum", "outputsperprompt",
		"numoutputsperprompt", "samplesperprompt", "numsamplesperprompt", "clipcount", "ncandidates", "nvariations", "nimgs", "bestof",
	}},
	{means: "`n`", adopt: adoptInto(func(o *Output) **int { return &o.Count }), deep: true, counts: true, names: []string{
		"outputs", "samples", "videos", "images", "clips", "results", "candidates", "variants", "variations", "generations", "amount", "repeat",
		"num", "takes", "loops", "loop", "copies", "repeats", "repetitions", "times", "batch", "batches", "pictures", "photos", "replicas",
	}},
	{means: "`width`", adopt: adoptInto(func(o *Output) **int { return &o.Width }), names: []string{"width", "videowidth"}},
	{means: "`height`", adopt: adoptInto(func(o *Output) **int { return &o.Height }), names: []string{"height", "videoheight"}},
	{means: "`fps`", adopt: adoptInto(func(o *Output) **int { return &o.FPS }), names: []string{"fps", "framerate", "framespersecond"}},
	{means: "`width` and `height`", adopt: adoptSize, opaque: true, names: []string{"size", "videosize", "resolution", "videoresolution"}},
	{means: "the given `duration` times the given `fps`", adopt: agreeFrames, deep: true, names: []string{
		"frames", "numframes", "framecount", "numberofframes", "nframes", "framenum", "framesnum", "framenumber", "framescount", "totalframes", "videoframes",
		"numvideoframes", "maxframes", "outputframes", "lengthframes", "lengthinframes", "videolengthframes", "clipframes", "framesperclip", "durationframes",
	}},
}

// containers are objects whose members some services treat as members of the
// request.
var containers = []string{
	"metadata", "parameters", "params", "output", "outputconfig", "input", "extinfo", "extra", "extrabody", "extraparams", "options", "config",
	"settings", "arguments", "args", "generationconfig", "videoconfig", "videogenerationconfig", "size", "videosize", "resolution", "instances", "video",
}

// maxContainers is the maximum depth of nested containers. Each is decoded
// again, and no known service reads more than two levels.
const maxContainers = 4

// bodyFields are the members of the body itself that have a field in Request.
var bodyFields = map[string]bool{"model": true, "duration": true, "n": true, "width": true, "height": true, "fps": true}

// normalize returns a name without case and separators, because some services
// ignore them: durationSeconds, duration_seconds and DURATION-SECONDS are equal.
func normalize(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(unicode.ToUpper(r)) // U+017F becomes an s
	}, name)
}

// longestName is longer than any name in the tables.
const longestName = 64

// ranks maps a name to its index in quantities.
var ranks = func() map[string]int {
	all := make(map[string]int)
	for rank, d := range quantities {
		for _, name := range d.names {
			all[name] = rank
		}
	}
	return all
}()

// quantityOf returns the quantity for a member name, or nil.
func quantityOf(name string) *quantity {
	if rank := rankOf(name); rank >= 0 {
		return &quantities[rank]
	}
	return nil
}

// rankOf returns the index in quantities for a member name, or -1.
func rankOf(name string) int {
	if len(name) > longestName {
		return -1
	}
	if rank, found := ranks[normalize(name)]; found {
		return rank
	}
	return -1
}

// aliasesOf returns the aliases in a body of /v1/video/generations in the order
// of evaluation.
func aliasesOf(fields map[string]json.RawMessage) []alias { return collect("", fields) }

// aliasesWithin returns the aliases in an object at path.
func aliasesWithin(path string, object json.RawMessage) []alias {
	var members map[string]json.RawMessage
	if len(object) == 0 || json.Unmarshal(object, &members) != nil {
		return nil
	}
	return collect(path, members)
}

func collect(path string, members map[string]json.RawMessage) []alias {
	found := walk(nil, path, members, 0)
	slices.SortFunc(found, func(a, b alias) int {
		return cmp.Or(a.rank-b.rank, strings.Count(a.path, ".")-strings.Count(b.path, "."), strings.Compare(a.path, b.path))
	})
	return found
}

// walk appends the aliases among the members of the object at path, which is
// empty for the body, and of its containers. depth is the number of enclosing
// containers.
func walk(found []alias, path string, members map[string]json.RawMessage, depth int) []alias {
	for name, raw := range members {
		here := name
		if path != "" {
			here = path + "." + name
		}
		rank := rankOf(name)
		switch {
		case path == "" && bodyFields[name]:
		case raw[0] == '{' && depth < maxContainers && len(name) <= longestName && slices.Contains(containers, normalize(name)):
			var inner map[string]json.RawMessage
			_ = json.Unmarshal(raw, &inner) // raw was decoded before
			found = walk(found, here, inner, depth+1)
		case raw[0] == '[' && rank < 0 && depth < maxContainers && len(name) <= longestName && slices.Contains(containers, normalize(name)):
			var elements []map[string]json.RawMessage
			if json.Unmarshal(raw, &elements) == nil { // otherwise they are not objects
				for i, inner := range elements {
					found = walk(found, here+"["+strconv.Itoa(i)+"]", inner, depth+1)
				}
			}
		case raw[0] == '"' && rank < 0 && depth < maxContainers && len(name) <= longestName && slices.Contains(containers, normalize(name)):
			found = walk(found, here, objectIn(raw), depth+1)
		case rank < 0:
		case path == "" && string(raw) == "null": // treated as absent
		default:
			if a := newAlias(rank, here, raw); a.counts() {
				found = append(found, a)
			}
		}
	}
	return found
}

// objectIn returns the members of the JSON object in a string, or nil if the string
// contains no object or is too long.
func objectIn(raw json.RawMessage) (members map[string]json.RawMessage) {
	var text string
	if len(raw) > 2*MaxExtended || json.Unmarshal(raw, &text) != nil || len(text) > MaxExtended ||
		!strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return nil
	}
	_ = json.Unmarshal([]byte(text), &members) // anything but an object has no members
	return members
}

// alias is a member that sets a quantity that affects the price.
type alias struct {
	rank int // index in quantities
	path string
	raw  json.RawMessage
	text string // if it is a string or a number
}

func newAlias(rank int, path string, raw json.RawMessage) alias {
	a := alias{rank: rank, path: path, raw: raw}
	switch {
	case raw[0] == '"':
		_ = json.Unmarshal(raw, &a.text)
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		a.text = string(raw)
	}
	return a
}

// quantity returns the quantity of the member.
func (a *alias) quantity() *quantity { return &quantities[a.rank] }

// counts reports whether the member affects the price. Members of some names do so
// only with an integer value.
func (a *alias) counts() bool {
	if !a.quantity().counts {
		return true
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(a.text), 64)
	return err == nil && n == math.Trunc(n)
}

// readable reports whether a word for a size can be compared.
func (a *alias) readable() bool { return sizeText.MatchString(a.text) }

// adopt sets the values of the aliases in the request, and returns an error for
// a contradiction.
func (r *Request) adopt(aliases []alias) *fault.Fault {
	for i := range aliases {
		a := &aliases[i]
		if of := a.quantity(); !of.adopt(r, a) {
			return invalid(a.path, "must have the same value as %s, which determines the price", of.means)
		}
	}
	return nil
}

// A number in a string must have the canonical spelling, because parsers read 010,
// 0x10 or 4e0 differently.
var (
	decimalText = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	sizeText    = regexp.MustCompile(`^([1-9][0-9]{0,4})(?:[xX*×]([1-9][0-9]{0,4})|[pPkK])?$`)
)

func adoptModel(r *Request, a *alias) bool {
	if a.raw[0] != '"' || a.text == "" {
		return false
	}
	r.Model = cmp.Or(r.Model, a.text)
	return r.Model == a.text
}

func adoptDuration(r *Request, a *alias) bool {
	if a.raw[0] == '"' && !decimalText.MatchString(a.text) {
		return false
	}
	n, refused := catalog.ParseSeconds(a.text)
	if refused == nil && r.Output.Duration == nil {
		r.Output.Duration = &n
	}
	return refused == nil && *r.Output.Duration == n
}

// adoptUnits is adoptDuration for an integer number of units.
func adoptUnits(unit catalog.Seconds) func(*Request, *alias) bool {
	return func(r *Request, a *alias) bool {
		n, err := strconv.ParseInt(a.text, 10, 64)
		if err != nil || !decimalText.MatchString(a.text) || n <= 0 || n > int64(catalog.MaxSeconds/unit) {
			return false
		}
		length := catalog.Seconds(n) * unit
		r.Output.Duration = cmp.Or(r.Output.Duration, &length)
		return *r.Output.Duration == length
	}
}

// adoptInto is adopt for an integer of the output.
func adoptInto(of func(*Output) **int) func(*Request, *alias) bool {
	return func(r *Request, a *alias) bool {
		n, err := strconv.ParseInt(a.text, 10, 32)
		return err == nil && decimalText.MatchString(a.text) && same(of(&r.Output), int(n))
	}
}

// same reports whether a number equals n. If the number is not set, it becomes
// n.
func same(number **int, n int) bool {
	if *number == nil {
		*number = &n
	}
	return **number == n
}

// adoptSize parses 1280x720, 720P and 720. Other values are ignored here: they
// may be words of the service.
func adoptSize(r *Request, a *alias) bool {
	parts := sizeText.FindStringSubmatch(a.text)
	if parts == nil {
		return true
	}
	out := &r.Output
	lines, _ := strconv.Atoi(parts[1])
	switch {
	case parts[2] != "":
		height, _ := strconv.Atoi(parts[2])
		if !same(&out.Width, lines) || !same(&out.Height, height) {
			return false
		}
	case out.Resolution == "":
		out.Resolution = resolutionText(a.text, lines)
	case !strings.EqualFold(out.Resolution, resolutionText(a.text, lines)):
		return false
	}
	return out.Resolution == "" || out.Width == nil || out.Height == nil ||
		strings.EqualFold(out.Resolution, catalog.NameSize(*out.Width, *out.Height))
}

// resolutionText returns the name of a resolution in the tables: 1440p is 2K.
func resolutionText(text string, lines int) string {
	if strings.ContainsAny(text, "kK") {
		return strings.ToUpper(text)
	}
	return catalog.NameSize(lines, lines)
}

// agreeFrames reports whether a number of frames results in the requested
// duration. Services may count the first frame in addition. A list or an object
// is accepted, because it has images and not a number.
func agreeFrames(r *Request, a *alias) bool {
	if a.raw[0] == '[' || a.raw[0] == '{' {
		return true
	}
	n, err := strconv.ParseInt(a.text, 10, 32)
	if err != nil || !decimalText.MatchString(a.text) || r.Output.Duration == nil || r.Output.FPS == nil || *r.Output.FPS > maxFPS {
		return false
	}
	requested := int64(*r.Output.Duration) * int64(*r.Output.FPS)
	return requested == n*int64(catalog.Second) || requested == (n-1)*int64(catalog.Second)
}
