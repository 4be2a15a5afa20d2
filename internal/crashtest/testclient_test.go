package crashtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
)

func (w *testWorker) engine(call string, body obj) (int, []byte) {
	body["worker_id"] = w.id
	status, text, _ := post(os.Getenv("CONDUIT_URL")+"/api/v1/external-tasks/"+call, "", body)
	return status, text
}

func (w *testWorker) store(path string, body obj) (int, obj) {
	status, text, _ := post(os.Getenv("IDEMSTORE_URL")+path, os.Getenv("IDEMSTORE_TOKEN"), body)
	var answer obj
	_ = json.Unmarshal(text, &answer)
	return status, answer
}

func post(url, token string, body obj) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return send(req)
}

// send uses a connection for one request, so that no request is tried again because its connection was an old one.
func send(req *http.Request) (int, []byte, error) {
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}
