import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The pages work behind any path prefix, so that every URL is relative.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: { outDir: "../dist", emptyOutDir: true, target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: { proxy: { "/v1": "http://127.0.0.1:7700" } },
});
