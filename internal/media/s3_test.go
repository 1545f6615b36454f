package media

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestOptionsOfABucket(t *testing.T) {
	t.Parallel()
	good := S3Options{Endpoint: "https://s3.example.com:9000", Bucket: "files", AccessKey: "a", SecretKey: "s"}
	for text, change := range map[string]func(o *S3Options){
		"":                             func(*S3Options) {},
		"media.s3.endpoint is missing": func(o *S3Options) { o.Endpoint = "" },
		"media.s3.endpoint is not":     func(o *S3Options) { o.Endpoint = "ftp://s3.example.com" },
		"without a path":               func(o *S3Options) { o.Endpoint = "https://s3.example.com/bucket" },
		"media.s3.endpoint":            func(o *S3Options) { o.Endpoint = "https://user@s3.example.com" },
		"media.s3.bucket is missing":   func(o *S3Options) { o.Bucket = "" },
		"media.s3.bucket: ":            func(o *S3Options) { o.Bucket = "a/b" },
		"media.s3.access_key":          func(o *S3Options) { o.AccessKey = "" },
		"media.s3.secret_key":          func(o *S3Options) { o.SecretKey = "" },
		"media.s3.prefix":              func(o *S3Options) { o.Prefix = "a/../b" },
	} {
		o := good
		change(&o)
		_, err := S3(o)
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), "user@") {
			t.Errorf("the error contains a credential: %v", err)
		}
	}
	for endpoint, want := range map[string]string{"s3.example.com": "https://s3.example.com", "http://127.0.0.1:9000/": "http://127.0.0.1:9000"} {
		o := good
		o.Endpoint = endpoint
		place, err := S3(o)
		if err != nil || place.(*bucket).core.EndpointURL().String() != want {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// TestRequestsToABucket checks the requests of a copy, because each is billed,
// and that no upload is left.
func TestRequestsToABucket(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	place, err := S3(server.options())
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, place)
	small, large := newOrigin(t, film(100_000)), newOrigin(t, film(2*partSize))
	w.allow(small, large)
	w.keep(keeping("task_a", small.URL))
	w.keep(keeping("task_b", large.URL))
	var got []string
	for _, r := range server.requests {
		method, path, _ := strings.Cut(r, " ")
		path = strings.NewReplacer(w.nameOf("task_a", 0), "A", w.nameOf("task_b", 0), "B").Replace(path)
		got = append(got, method+" "+path)
	}
	want := []string{
		"HEAD /media-bucket/gateway/files/A",
		"PUT /media-bucket/gateway/files/A",
		"HEAD /media-bucket/gateway/files/B",
		"POST /media-bucket/gateway/files/B?uploads=",
		"PUT /media-bucket/gateway/files/B?partNumber=1&uploadId=upload-1",
		"PUT /media-bucket/gateway/files/B?partNumber=2&uploadId=upload-1",
		"POST /media-bucket/gateway/files/B?uploadId=upload-1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if len(server.uploads) != 0 || len(server.objects) != 2 {
		t.Errorf("left: %d uploads, %d objects", len(server.uploads), len(server.objects))
	}
}

// TestErrorsOfABucket checks that errors contain neither name nor secret, and
// that the copy is retried.
func TestErrorsOfABucket(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	place, err := S3(server.options())
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, place)
	o := newOrigin(t, film(12<<20))
	w.allow(o)
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut} {
		server.setFailure(func(r *http.Request) string {
			if r.Method == method {
				return "AccessDenied"
			}
			return ""
		})
		err := w.mustFail(keeping("task_a", o.URL), "403 AccessDenied")
		if strings.Contains(err.Error(), w.nameOf("task_a", 0)) || strings.Contains(err.Error(), s3Secret) {
			t.Errorf("the error contains the name or the secret: %v", err)
		}
	}
	server.setFailure(nil)
	link := w.keep(keeping("task_a", o.URL))[0]
	w.checkContent(link, o.content)
	name, _ := parts(t, link)
	server.setFailure(func(*http.Request) string { return "AccessDenied" })
	_, err = w.Open(t.Context(), name)
	if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Code != fault.StoreUnavailable {
		t.Errorf("%v", err)
	}
	server.CloseClientConnections()
	server.setFailure(nil)
	w.checkContent(link, o.content)
}

// TestForeignUploadsAreKept also checks uploads whose name begins with a file
// name.
func TestForeignUploadsAreKept(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	place, err := S3(server.options())
	if err != nil {
		t.Fatal(err)
	}
	name := newName()
	for _, key := range []string{name, name + ".backup"} {
		server.uploads[key] = &s3upload{key: "gateway/files/" + key}
	}
	if err := place.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if len(server.uploads) != 1 || server.uploads[name] != nil {
		t.Errorf("left: %v", server.uploads)
	}
}

func (s *s3server) setFailure(fail func(r *http.Request) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func TestAWrongSecretIsRefused(t *testing.T) {
	t.Parallel()
	options := newS3(t).options()
	options.SecretKey += "x"
	place, err := S3(options)
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, place)
	if err := w.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
		t.Errorf("%v", err)
	}
}

// TestCheck checks that Check writes, reads and removes, and leaves nothing.
func TestCheck(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		if err := w.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if list, _, err := w.place.List(t.Context(), "", 10); err != nil || len(list) != 0 {
			t.Errorf("%v is left: %v", list, err)
		}
		w.serve(func(c *Config) { c.Place = nil })
		if err := w.Check(t.Context()); err == nil {
			t.Error("Check without a place returned no error")
		}
	})
	full := Dir(t.TempDir(), 1).(*directory)
	full.space = func(string) (uint64, uint64, error) { return 0, 1, nil }
	if err := newFixture(t, full).Check(t.Context()); !errors.Is(err, errNoSpace) {
		t.Errorf("%v", err)
	}
}

// TestTheMockS3VerifiesSignatures compares the signatures of the mock server with
// the documentation ("Signature Calculations for the Authorization Header", the
// example of a GET of an object).
func TestTheMockS3VerifiesSignatures(t *testing.T) {
	t.Parallel()
	key := []byte("AWS4wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	for _, part := range []string{"20130524", "us-east-1", "s3", "aws4_request"} {
		key = mac(key, part)
	}
	toSign := "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972"
	if got := hex.EncodeToString(mac(key, toSign)); got != "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" {
		t.Errorf("got %s", got)
	}
}
