package media

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// s3server implements the part of S3 that the gateway uses. It verifies version
// 4 signatures without the library that creates them.
type s3server struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	objects  map[string]s3object
	uploads  map[string]*s3upload
	requests []string                     // method, path and query
	fail     func(r *http.Request) string // the code of an error; empty: none
}

type s3object struct {
	content  []byte
	modified time.Time
}

type s3upload struct {
	key       string
	initiated time.Time
	parts     map[int][]byte
}

const (
	s3Access = "AKIATEST"
	s3Secret = "a/secret+key"
	s3Region = "eu-test-1"
	s3Bucket = "media-bucket"
)

func newS3(t testing.TB) *s3server {
	t.Helper()
	s := &s3server{t: t, objects: make(map[string]s3object), uploads: make(map[string]*s3upload)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *s3server) options() S3Options {
	return S3Options{
		Endpoint: s.URL, Bucket: s3Bucket, Region: s3Region, AccessKey: s3Access, SecretKey: s3Secret,
		Prefix: "/gateway/files/", PathStyle: true,
	}
}

// newBucket returns a place at a new server.
func newBucket(t testing.TB) Place {
	t.Helper()
	place, err := S3(newS3(t).options())
	if err != nil {
		t.Fatal(err)
	}
	return place
}

func (s *s3server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if code := signed(r, body); code != "" {
		s.refuse(w, http.StatusForbidden, code)
		return
	}
	if s.fail != nil {
		if code := s.fail(r); code != "" {
			s.refuse(w, http.StatusForbidden, code)
			return
		}
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if bucket != s3Bucket {
		s.refuse(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if key == "" {
		s.list(w, r.URL.Query())
		return
	}
	s.object(w, r, key, body)
}

func (s *s3server) object(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	query := r.URL.Query()
	upload := s.uploads[query.Get("uploadId")]
	if query.Has("uploadId") && (upload == nil || upload.key != key) {
		s.refuse(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	object, found := s.objects[key]
	switch {
	case r.Method == http.MethodPost && query.Has("uploads"):
		id := fmt.Sprintf("upload-%d", len(s.uploads)+1)
		s.uploads[id] = &s3upload{key: key, initiated: time.Now(), parts: make(map[int][]byte)}
		answer(w, "InitiateMultipartUploadResult", "<Bucket>"+s3Bucket+"</Bucket><Key>"+key+"</Key><UploadId>"+id+"</UploadId>")
	case r.Method == http.MethodPost && upload != nil:
		s.complete(w, key, query.Get("uploadId"), body)
	case r.Method == http.MethodPut && upload != nil:
		n, _ := strconv.Atoi(query.Get("partNumber"))
		upload.parts[n] = body
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodPut:
		s.objects[key] = s3object{body, time.Now()}
		w.Header().Set("ETag", etagOf(body))
	case r.Method == http.MethodDelete && upload != nil:
		delete(s.uploads, query.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case upload != nil:
		s.listParts(w, upload, query)
	case !found:
		s.refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", etagOf(object.content))
		http.ServeContent(w, r, "", object.modified, bytes.NewReader(object.content))
	}
}

func (s *s3server) complete(w http.ResponseWriter, key, id string, body []byte) {
	var wanted struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &wanted); err != nil {
		s.refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var whole []byte
	for i, part := range wanted.Part {
		content, found := s.uploads[id].parts[part.PartNumber]
		switch {
		case !found || strings.Trim(part.ETag, `"`) != strings.Trim(etagOf(content), `"`):
			s.refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		case part.PartNumber != i+1:
			s.refuse(w, http.StatusBadRequest, "InvalidPartOrder")
			return
		case i < len(wanted.Part)-1 && len(content) < 5<<20:
			s.refuse(w, http.StatusBadRequest, "EntityTooSmall")
			return
		}
		whole = append(whole, content...)
	}
	s.objects[key] = s3object{whole, time.Now()}
	delete(s.uploads, id)
	answer(w, "CompleteMultipartUploadResult", "<Bucket>"+s3Bucket+"</Bucket><Key>"+key+"</Key><ETag>x</ETag>")
}

// listParts returns pages of three, so that paging is tested.
func (s *s3server) listParts(w http.ResponseWriter, upload *s3upload, query url.Values) {
	after, _ := strconv.Atoi(query.Get("part-number-marker"))
	numbers := slices.Sorted(maps.Keys(upload.parts))
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return n <= after })
	text, last := "", after
	for _, n := range numbers[:min(3, len(numbers))] {
		text += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>", n, etagOf(upload.parts[n]), len(upload.parts[n]))
		last = n
	}
	answer(w, "ListPartsResult", fmt.Sprintf("<IsTruncated>%t</IsTruncated><NextPartNumberMarker>%d</NextPartNumberMarker>%s", len(numbers) > 3, last, text))
}

func (s *s3server) list(w http.ResponseWriter, query url.Values) {
	prefix := query.Get("prefix")
	if query.Has("uploads") {
		text := ""
		for _, id := range slices.Sorted(maps.Keys(s.uploads)) {
			if u := s.uploads[id]; strings.HasPrefix(u.key, prefix) {
				text += fmt.Sprintf("<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>", u.key, id, u.initiated.UTC().Format(time.RFC3339))
			}
		}
		answer(w, "ListMultipartUploadsResult", text)
		return
	}
	after := max(query.Get("start-after"), query.Get("continuation-token"))
	limit, _ := strconv.Atoi(query.Get("max-keys"))
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(s.objects)), func(key string) bool {
		return !strings.HasPrefix(key, prefix) || key <= after
	})
	text, page := "", keys[:min(len(keys), cmpOr(limit, 1000))]
	for _, key := range page {
		text += fmt.Sprintf("<Contents><Key>%s</Key><Size>%d</Size><LastModified>%s</LastModified></Contents>", key, len(s.objects[key].content), s.objects[key].modified.UTC().Format(time.RFC3339))
	}
	if len(page) < len(keys) {
		text += "<IsTruncated>true</IsTruncated><NextContinuationToken>" + page[len(page)-1] + "</NextContinuationToken>"
	}
	answer(w, "ListBucketResult", text)
}

func cmpOr(n, other int) int {
	if n > 0 {
		return n
	}
	return other
}

func etagOf(content []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(content)) }

func answer(w http.ResponseWriter, element, inner string) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "%s<%s>%s</%s>", xml.Header, element, inner, element)
}

func (s *s3server) refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>no</Message></Error>", xml.Header, code)
}

// signed verifies the signature of a request as AWS documents it ("Signature
// Calculations for the Authorization Header"), and returns an error code.
func signed(r *http.Request, body []byte) string {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fields := make(map[string]string)
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if scheme != "AWS4-HMAC-SHA256" || err != nil || time.Since(at).Abs() > 15*time.Minute {
		return "RequestTimeTooSkewed"
	}
	scope := date[:8] + "/" + s3Region + "/s3/aws4_request"
	if fields["Credential"] != s3Access+"/"+scope {
		return "InvalidAccessKeyId"
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if hash := sha256.Sum256(body); payload != hex.EncodeToString(hash[:]) && (payload != "UNSIGNED-PAYLOAD" || len(body) > 0) {
		return "XAmzContentSHA256Mismatch"
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	if !slices.Contains(names, "host") || !slices.Contains(names, "x-amz-date") || !slices.Contains(names, "x-amz-content-sha256") {
		return "AccessDenied"
	}
	headers := ""
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		headers += name + ":" + strings.TrimSpace(value) + "\n"
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	canonical := strings.Join([]string{r.Method, r.URL.EscapedPath(), query, headers, fields["SignedHeaders"], payload}, "\n")
	hash := sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + s3Secret)
	for _, part := range strings.Split(scope, "/") {
		key = mac(key, part)
	}
	want := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hex.EncodeToString(hash[:])))
	if fields["Signature"] != want {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
