import "./lib/early"; // first: it asks the server while the code below is run

import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";

// The icon's URL is relative, and browsers resolve it again when the page's URL changes.
for (const icon of document.querySelectorAll<HTMLLinkElement>("link[rel=icon]")) icon.setAttribute("href", icon.href);

const target = document.getElementById("app");
if (target) mount(App, { target });
