package usage

// place is the place of a value in an answer or a request. It decides how the value is
// handled. The elements of an array have the place of the array.
type place uint8

const (
	nothing place = iota // a skipped value

	// Objects, and arrays of objects.
	top                  // the document
	imageAnswer          // the document, if it has images; see [Format]
	imageList            // its images
	recordingAnswer      // the document, if it has speech or the text of a recording
	requestBody          // the body of a request
	requestMessage       // an element of its messages
	startMessage         // the message of a message_start
	usageReport          // a usage object
	startUsage           // the usage object of a message_start
	inputDetails         // the parts of an input figure
	outputDetails        // the parts of an output figure
	cachedDetails        // the parts of the figure of cached input
	serverToolUse        // server_tool_use: how often the backend ran which tool
	iteration            // an element of iterations: one pass of a model
	cacheCreationDetails // cache_creation by lifetime
	vendorMember         // an object with members of one vendor
	choice               // an element of choices
	reply                // the message or delta of a choice
	toolCall             // a call of a tool, or its function
	media                // speech
	picture              // an image
	contentBlock         // the content_block of a content_block_start
	contentBlocks        // the content of a whole message: a string, or an array of blocks
	responseBody         // the response in an event of /v1/responses
	outputItem           // an element of the output of a response that is not streamed
	listedItem           // an element of the output of the response in an event, whose text usually came before
	eventItem            // the item of an event, whose text usually came before
	itemAction           // what the tool of an item did
	itemEnvironment      // where the tool of an item ran
	toolReport           // tool_usage: the tools that the backend ran
	toolReportEntry      // one of these tools
	listAnswer           // the document, if it may be a list of items; see [Reader.CollectIDs]
	conversationOf       // the conversation of a response
	answerMeta           // meta of a rerank answer
	billedUnits          // its billed_units

	requestSource // the source of a part of a request
	requestImage  // an image in a request, or the object that holds it

	// Strings of text, and arrays and objects that contain them.
	text
	itemText    // of an item, in an event
	requestText // in a request, where blocks may hold blocks
	reasoning   // and its other names
	reasoningContent
	reasoningDetails
	otherText // of an unknown member of a message

	// Scalars, and objects whose members are skipped.
	toolInput    // arguments of a tool, as a string or as JSON
	toolName     // the name of a tool that is called
	signature    // the signature of a thought; some thoughts are sent without text
	mediaData    // speech, or a link to it
	imageData    // an image, or a link to it
	listedImage  // the same, in an element of imageList
	eventImage   // the same, in an event
	requestLink  // the link of a source in a request
	fault        // an error
	finishReason // why a choice ended
	choiceIndex  // the number of a choice
	toolUses     // how often one tool ran

	recordedSeconds // the length of a recording
	searchUnits     // the search units of a rerank call
	sequenceNumber  // the number of an event of a response

	// Strings that are compared or stored. See [place.isToken].
	documentType    // the type of the document
	imageSize       // the size of the images
	imageQuality    // the quality of the images
	stopReason      // why a message ended
	model           // the model that served the call
	tier            // the service tier that served the call
	speed           // the speed mode that served the call
	geo             // the region that served the call
	itemType        // the type of an item
	actionType      // the type of the action of an item
	environmentType // the type of the environment of an item
	blockKind       // the type of a content block
	blockName       // the name of a content block
	iterationType   // the type of an iteration
	iterationModel  // the model of an iteration
	requestPartType // the type of a part of a request
	objectID        // the id of the document or of a response
	itemID          // the id of an item
	containerID     // the id of a container
	conversationID  // the id of a conversation
	responseStatus  // the status of a response

	// From here on there is a place for each figure.
	firstFigure
)

// reasoningPlaces is the number of places of reasoning and of text in unknown members.
const reasoningPlaces = otherText - reasoning + 1

// isContainer reports whether the members of an object or array at p are read.
func (p place) isContainer() bool {
	return top <= p && p <= otherText
}

// isToken reports whether a string at p is compared or stored.
func (p place) isToken() bool { return documentType <= p && p < firstFigure }

// isLink reports whether a string at p is a link of a request.
func (p place) isLink() bool { return p == requestImage || p == requestLink }

// isNumber reports whether a number at p is stored.
func (p place) isNumber() bool {
	return p >= firstFigure || p == toolUses || p == choiceIndex || p == recordedSeconds || p == searchUnits || p == sequenceNumber
}
