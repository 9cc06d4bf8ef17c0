// Prints gomemcache's server index of each key on standard input: gomemcache host:port... < keys, a weight of two by naming a server twice
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

func main() {
	var servers memcache.ServerList
	if err := servers.SetServers(os.Args[1:]...); err != nil {
		panic(err)
	}
	indexByServer := map[string]int{}
	for _, server := range os.Args[1:] {
		if _, isKnown := indexByServer[server]; !isKnown {
			indexByServer[server] = len(indexByServer)
		}
	}
	keys, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for keys.Scan() {
		address, err := servers.PickServer(keys.Text())
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(out, indexByServer[address.String()])
	}
}
