// Every operation of gomemcache: gomemcache PORT, with the authority of a server that encrypts in TLS_AUTHORITY
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

var checkCount, failureCount int

// check notes whether an operation did as the client promises.
func check(operation string, condition bool) {
	checkCount++
	if !condition {
		failureCount++
		fmt.Println("  FAIL", operation)
	}
}

func value(client *memcache.Client, key string) string {
	item, err := client.Get(key)
	if err != nil {
		return "error " + err.Error()
	}
	return string(item.Value)
}

// encrypt makes the client connect by TLS and verify the server by the authority in a file.
func encrypt(client *memcache.Client, authority string) {
	certificate, err := os.ReadFile(authority)
	authorities := x509.NewCertPool()
	if err != nil || !authorities.AppendCertsFromPEM(certificate) {
		fmt.Println("  FAIL authority")
		os.Exit(1)
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: authorities}}
	client.DialContext = func(context context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(context, network, address)
	}
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	if authority := os.Getenv("TLS_AUTHORITY"); authority != "" {
		encrypt(client, authority)
	}
	check("Ping", client.Ping() == nil)
	check("FlushAll", client.FlushAll() == nil)
	check("Set", client.Set(&memcache.Item{Key: "a", Value: []byte("1"), Flags: 7}) == nil)
	item, err := client.Get("a")
	check("Get", err == nil && string(item.Value) == "1" && item.Flags == 7)
	_, err = client.Get("none")
	check("Get of nothing", errors.Is(err, memcache.ErrCacheMiss))
	check("Set again", client.Set(&memcache.Item{Key: "b", Value: []byte("2")}) == nil)
	items, err := client.GetMulti([]string{"a", "b", "none"})
	check("GetMulti", err == nil && len(items) == 2 && string(items["b"].Value) == "2")
	check("Add", client.Add(&memcache.Item{Key: "c", Value: []byte("1")}) == nil)
	check("Add again", errors.Is(client.Add(&memcache.Item{Key: "c", Value: []byte("1")}), memcache.ErrNotStored))
	check("Replace", client.Replace(&memcache.Item{Key: "c", Value: []byte("2")}) == nil)
	check("Replace of nothing", errors.Is(client.Replace(&memcache.Item{Key: "none", Value: []byte("2")}), memcache.ErrNotStored))
	check("Append", client.Append(&memcache.Item{Key: "c", Value: []byte("3")}) == nil)
	check("Prepend", client.Prepend(&memcache.Item{Key: "c", Value: []byte("1")}) == nil)
	check("value", value(client, "c") == "123")
	item, err = client.Get("c")
	item.Value = []byte("cas")
	check("CompareAndSwap", err == nil && client.CompareAndSwap(item) == nil && value(client, "c") == "cas")
	check("CompareAndSwap again", errors.Is(client.CompareAndSwap(item), memcache.ErrCASConflict))
	check("Set number", client.Set(&memcache.Item{Key: "n", Value: []byte("5")}) == nil)
	number, err := client.Increment("n", 3)
	check("Increment", err == nil && number == 8)
	number, err = client.Decrement("n", 1)
	check("Decrement", err == nil && number == 7)
	_, err = client.Increment("none", 1)
	check("Increment of nothing", errors.Is(err, memcache.ErrCacheMiss))
	check("Touch", client.Touch("n", 100) == nil)
	check("Touch of nothing", errors.Is(client.Touch("none", 100), memcache.ErrCacheMiss))
	item, err = client.GetAndTouch("n", 100)
	check("GetAndTouch", err == nil && string(item.Value) == "7")
	check("Delete", client.Delete("n") == nil)
	check("Delete of nothing", errors.Is(client.Delete("n"), memcache.ErrCacheMiss))
	large := bytes.Repeat([]byte("x"), 900_000)
	check("large value", client.Set(&memcache.Item{Key: "large", Value: large}) == nil && value(client, "large") == string(large))
	check("Expiration", client.Set(&memcache.Item{Key: "e", Value: []byte("v"), Expiration: 100}) == nil && value(client, "e") == "v")
	check("DeleteAll", client.DeleteAll() == nil && value(client, "a") != "1")
	fmt.Printf("%d of %d operations\n", checkCount-failureCount, checkCount)
	if failureCount > 0 {
		os.Exit(1)
	}
}
